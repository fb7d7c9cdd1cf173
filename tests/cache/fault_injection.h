// Faults in the calls that a process makes to one filesystem: the test's program defines open,
// pwrite, fsync and the like itself, before those of libc, so that the libraries' calls come by
// here too (LMDB's, and those of std::filesystem).
//
// Calls to files of the filesystem that holds the given directory are counted, in forked children
// as well; one of them, or all from one on, fail with an errno. The rest go through.
#pragma once

#include <cstdint>
#include <string>

namespace prefixfs::faults {

struct Plan {
  std::string directory;
  uint64_t at = 0;  // the number of the call that fails, from 1 on; 0: none
  int error = 0;
  bool from_then_on = false;
};

void Arm(const Plan& plan);
// Ends it. How many calls there were.
uint64_t Disarm();
// Whether the call with that number of the last plan can fail so.
bool CanFail(uint64_t at, int error);
// "pwrite (2 faults)", of the last plan that was armed; empty if nothing failed.
std::string WhatFailed();

// FICLONE copies the bytes, where the filesystem has no reflinks.
void ImitateReflinks(bool on);

// This thread's calls are a client's: they neither count nor fail.
class Exempt {
 public:
  Exempt();
  ~Exempt();
  Exempt(const Exempt&) = delete;
  Exempt& operator=(const Exempt&) = delete;
};

}  // namespace prefixfs::faults
