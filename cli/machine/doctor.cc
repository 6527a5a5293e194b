// muster doctor: checks this machine.
#include <filesystem>
#include <string>
#include <system_error>

#include <absl/strings/str_cat.h>

#include "cli/command.h"
#include "cli/finding.h"
#include "cli/machine/machine_facts.h"
#include "cli/terminal/terminal.h"

namespace muster::cli {
namespace {

struct MachineDoctorOptions {
  std::string folder = ".";
  bool json = false;
};

int examine(const MachineDoctorOptions& options) {
  std::error_code error;
  const auto folder = std::filesystem::absolute(options.folder, error).lexically_normal();
  if (!std::filesystem::is_directory(folder, error))
    return fail(absl::InvalidArgumentError(
        absl::StrCat("--folder ", options.folder, ": there is no such folder")));
  return print_findings(examine_machine(read_machine(folder.string())), options.json);
}

}  // namespace

void declare_doctor(CLI::App& app, Action& action) {
  auto options = std::make_shared<MachineDoctorOptions>();
  CLI::App* command = app.add_subcommand(
      "doctor", "Check this machine: processors, memory, GPUs, fabric, limits, clock, disk");
  command->add_option("--folder", options->folder, "Folder in which runs would write")
      ->type_name("FOLDER")
      ->capture_default_str();
  add_json_option(*command, options->json);
  command->footer(
      "Takes a second; up to a minute if the driver of idle GPUs has to start. Exit codes: 0 "
      "nothing hinders a training; 1 something does, with the remedy; 2 bad input. A "
      "coordinator and its fleet: muster admin doctor.\n"
      "Examples:\n"
      "  muster doctor\n"
      "  srun -N 8 --ntasks-per-node=1 muster doctor --folder /scratch --json");
  on_call(*command, action, options, examine);
}

}  // namespace muster::cli
