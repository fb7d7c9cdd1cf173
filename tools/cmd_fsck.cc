// prefixfs fsck: checks what is on the drives of a mount that is not mounted.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "tools/commands.h"
#include "tools/fsck/fsck.h"

namespace prefixfs {
namespace {

int RunFsck(const fsck::Options& options, bool json) {
  const Result<fsck::Report> report = fsck::Run(options);
  if (!report.ok()) {
    (void)Fail(fsck::Escape(report.status().message()));
    return fsck::kExitFailedToRun;
  }
  if (json) {
    fsck::PrintJson(*report);
  } else {
    fsck::PrintHuman(*report);
  }
  return report->ExitCode();
}

}  // namespace

int FsckUsageExitCode() { return fsck::kExitWrongUsage; }

void AddFsckCommand(CLI::App& app, int* exit_code) {
  struct Choices {
    fsck::Options options;
    bool json = false;
  };
  auto choices = std::make_shared<Choices>();
  CLI::App* command = app.add_subcommand("fsck", "Check, and repair, the drives of a mount");
  command
      ->add_option("DIR", choices->options.drives,
                   "The drives, as and in the order in which the mount has them")
      ->required()
      ->type_name("");
  command->add_flag(
      "--repair", choices->options.repair,
      "Put aside what cannot be trusted, and have the index made anew if it is wrong");
  command->add_flag("--checksums", choices->options.checksums,
                    "Read every block and compare it with its checksum");
  command->add_flag("--json", choices->json, "Print a JSON object");
  command->footer(
      "Exit codes: 0 clean, 1 errors, all repaired, 4 errors left, 8 in use or not to be checked,\n"
      "16 wrong usage.");
  command->callback(
      [choices, exit_code] { *exit_code = RunFsck(choices->options, choices->json); });
}

}  // namespace prefixfs
