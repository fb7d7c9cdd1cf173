include_guard(GLOBAL)

# A program of tests that need root, FUSE and loop devices; label `mount`, or LABELS instead.
# Each of its tests is a ctest of its own unless TOGETHER or LABELS is given.
# All of them run once more with passthrough=off, as NAME.served: those of the gtest filter SERVED (all that TOGETHER
# has, if it is given) with label `mount`, the rest with label `full`. And as NAME.ext4, on drives of ext4, and NAME.devfuse,
# without io_uring: label `full`, or `mount` too if VARIANTS is given.
# prefixfs_mount_test(name SOURCES a.cc b.cc [LINK lib...] [TOGETHER] [TIMEOUT seconds] [LABELS label...] [SERVED filter]
#                     [VARIANTS])
function(prefixfs_mount_test name)
  cmake_parse_arguments(ARG "TOGETHER;VARIANTS" "TIMEOUT;SERVED" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 180)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE prefixfs_support ${ARG_LINK} GTest::gtest GTest::gtest_main)
  if(PREFIXFS_PCH)
    target_precompile_headers(${name} REUSE_FROM prefixfs_support)
  endif()
  prefixfs_variant(${name} ext4 "${ARG_VARIANTS}" PREFIXFS_TEST_FILESYSTEM=ext4)
  prefixfs_variant(${name} devfuse "${ARG_VARIANTS}" PREFIXFS_TEST_IO_URING=off)
  # What is repeated this way is not also repeated many times.
  set(served ENVIRONMENT PREFIXFS_TEST_PASSTHROUGH=off ENVIRONMENT_MODIFICATION PREFIXFS_FULL=unset:
      TIMEOUT ${ARG_TIMEOUT})
  if(ARG_TOGETHER OR ARG_LABELS)
    if(NOT ARG_LABELS)
      set(ARG_LABELS mount)
    endif()
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
    set(label full)
    if(ARG_SERVED)
      set(label mount)
    endif()
    add_test(NAME ${name}.served COMMAND ${name})
    set_tests_properties(${name}.served PROPERTIES LABELS ${label} ${served})
    return()
  endif()
  gtest_discover_tests(${name} TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST
                       PROPERTIES LABELS mount TIMEOUT ${ARG_TIMEOUT})
  if(ARG_SERVED)
    gtest_discover_tests(${name} TEST_PREFIX ${name}. TEST_SUFFIX .served TEST_FILTER "${ARG_SERVED}"
                         DISCOVERY_MODE PRE_TEST PROPERTIES LABELS mount ${served})
    gtest_discover_tests(${name} TEST_PREFIX ${name}. TEST_SUFFIX .served TEST_FILTER "-${ARG_SERVED}"
                         DISCOVERY_MODE PRE_TEST PROPERTIES LABELS full ${served})
  else()
    gtest_discover_tests(${name} TEST_PREFIX ${name}. TEST_SUFFIX .served
                         DISCOVERY_MODE PRE_TEST PROPERTIES LABELS full ${served})
  endif()
endfunction()

# All tests of the program in another environment, as one.
function(prefixfs_variant name variant in_mount environment)
  set(label full)
  if(in_mount)
    set(label mount)
  endif()
  add_test(NAME ${name}.${variant} COMMAND ${name})
  set_tests_properties(${name}.${variant} PROPERTIES LABELS ${label} TIMEOUT 900 ENVIRONMENT ${environment}
                       ENVIRONMENT_MODIFICATION PREFIXFS_FULL=unset:)
endfunction()

# The same program once more with PREFIXFS_FULL=1: many more rounds, label `full`.
function(prefixfs_full_test name filter timeout)
  add_test(NAME ${name}.full COMMAND ${name} --gtest_filter=${filter})
  set_tests_properties(${name}.full PROPERTIES LABELS full TIMEOUT ${timeout} ENVIRONMENT PREFIXFS_FULL=1)
endfunction()
