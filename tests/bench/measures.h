// The measures of the bench: each does one kind of work on one directory and gives one figure. The
// work is the same whatever filesystem is below, so that figures of several filesystems can stand
// side by side.
//
// Prepare() must have filled the directory. A failing system call ends the program with a message:
// half a measurement is none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace prefixfs::bench {

struct Options {
  std::string dir;
  uint64_t big_bytes = 256ull << 20;    // the file that is read in pieces
  int files = 64;                       // files of 1 MiB
  int names = 2000;                     // files of 4 KiB, for the first stat
  int samples = 2000;                   // single operations, of which the median is taken
  uint64_t write_bytes = 512ull << 20;  // written by each write measure
  int passes = 4;                       // over the big file
};

// Makes the files that the measures read. Does nothing for files that are there in full.
void Prepare(const Options& options);
// Removes them.
void Clean(const Options& options);

struct Measure {
  std::string_view name;
  std::string_view title;
  std::string_view unit;  // "GiB/s": more is better; "us": less is better
  bool cold_names;        // the driver drops the kernel's names and inodes before
  double (*run)(const Options&);
};

const std::vector<Measure>& Measures();

}  // namespace prefixfs::bench
