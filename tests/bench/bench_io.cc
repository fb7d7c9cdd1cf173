// bench_io: one measurement on one directory, printed as a number. tests/bench/bench.py runs it on
// several filesystems in turn and makes the table.
#include <sched.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "tests/bench/measures.h"

namespace {

using prefixfs::bench::Measure;
using prefixfs::bench::Measures;
using prefixfs::bench::Options;

// One line a measure, tab separated: the driver's table has exactly what this program can do.
int List() {
  for (const Measure& m : Measures()) {
    std::printf("%s\t%s\t%s\t%d\n", std::string(m.name).c_str(), std::string(m.title).c_str(),
                std::string(m.unit).c_str(), m.cold_names ? 1 : 0);
  }
  return 0;
}

bool Pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

int Run(const std::string& name, const Options& options) {
  for (const Measure& m : Measures()) {
    if (m.name != name) continue;
    std::printf("%.6f\n", m.run(options));
    return 0;
  }
  std::fprintf(stderr, "bench_io: no measure is called %s; see --list\n", name.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  std::string measure;
  int cpu = -1;
  bool list = false, prepare = false, clean = false;
  CLI::App app{"One measurement on one directory"};
  app.add_flag("--list", list, "List the measures: name, title, unit, whether names must be cold");
  app.add_flag("--prepare", prepare, "Make the files that the measures read");
  app.add_flag("--clean", clean, "Remove them");
  app.add_option("--measure", measure, "The measure to take");
  app.add_option("--dir", options.dir, "The directory to work in");
  app.add_option("--cpu", cpu, "Run on this CPU only");
  app.add_option("--big-bytes", options.big_bytes, "Size of the file read in pieces");
  app.add_option("--files", options.files, "Number of 1 MiB files")->check(CLI::PositiveNumber);
  app.add_option("--names", options.names, "Number of names to stat")->check(CLI::PositiveNumber);
  app.add_option("--samples", options.samples, "Operations a median")->check(CLI::PositiveNumber);
  app.add_option("--write-bytes", options.write_bytes, "Bytes a write measure writes");
  app.add_option("--passes", options.passes, "Passes over the file read in pieces");
  CLI11_PARSE(app, argc, argv);

  if (list) return List();
  if (options.dir.empty()) {
    std::fprintf(stderr, "bench_io: --dir is needed\n");
    return 2;
  }
  if (cpu >= 0 && !Pin(cpu)) {
    std::perror("bench_io: sched_setaffinity");
    return 1;
  }
  if (prepare) prefixfs::bench::Prepare(options);
  const int result = measure.empty() ? 0 : Run(measure, options);
  if (clean) prefixfs::bench::Clean(options);
  return result;
}
