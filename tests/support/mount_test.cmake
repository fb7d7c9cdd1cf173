include_guard(GLOBAL)

# A program of tests that need root, FUSE and loop devices; label `mount`, or LABELS instead.
# Each of its tests is a ctest of its own unless TOGETHER or LABELS is given.
# prefixfs_mount_test(name SOURCES a.cc b.cc [LINK lib...] [TOGETHER] [TIMEOUT seconds] [LABELS label...])
function(prefixfs_mount_test name)
  cmake_parse_arguments(ARG "TOGETHER" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 180)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE prefixfs_support ${ARG_LINK} GTest::gtest GTest::gtest_main)
  if(PREFIXFS_PCH)
    target_precompile_headers(${name} REUSE_FROM prefixfs_support)
  endif()
  if(ARG_TOGETHER OR ARG_LABELS)
    if(NOT ARG_LABELS)
      set(ARG_LABELS mount)
    endif()
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  else()
    gtest_discover_tests(${name} TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST
                         PROPERTIES LABELS mount TIMEOUT ${ARG_TIMEOUT})
  endif()
endfunction()

# The same program once more with PREFIXFS_FULL=1: many more rounds, label `full`.
function(prefixfs_full_test name filter timeout)
  add_test(NAME ${name}.full COMMAND ${name} --gtest_filter=${filter})
  set_tests_properties(${name}.full PROPERTIES LABELS full TIMEOUT ${timeout} ENVIRONMENT PREFIXFS_FULL=1)
endfunction()
