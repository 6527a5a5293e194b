// muster version: prints the version, and compares it with those of a coordinator and its workers.
#include "common/version.h"

#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "cli/admin/doctor_checks.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/terminal/terminal.h"

namespace muster::cli {
namespace {

struct VersionOptions {
  CoordinatorTarget coordinator;
  bool check = false;
  bool json = false;
};

// Exit code if the versions could not be compared.
constexpr int kNotCompared = 3;

int check_versions(const VersionOptions& options) {
  Client client(options.coordinator);
  const auto coordinator = client.get_coordinator();
  const auto workers = coordinator.ok()
                           ? client.list_workers()
                           : absl::StatusOr<v1::ListWorkersResponse>(coordinator.status());
  if (!workers.ok()) {
    fail(workers.status());
    return kNotCompared;
  }
  return print_findings({version_finding(*coordinator, kVersion),
                         worker_versions_finding(*workers, coordinator->version())},
                        options.json);
}

int version(const VersionOptions& options) {
  if (options.check) return check_versions(options);
  return print_result(options.json ? nlohmann::json({{"version", kVersion}}).dump() + "\n"
                                   : absl::StrCat("muster ", kVersion, "\n"));
}

}  // namespace

void declare_version(CLI::App& app, Action& action) {
  auto options = std::make_shared<VersionOptions>();
  CLI::App* command =
      app.add_subcommand("version", "Print the version, which coordinator and workers must share");
  command->add_flag(
      "--check", options->check,
      "Compare it with the coordinator's and its workers', with an admin's token if the "
      "coordinator requires one; exit code 1 if one differs, 3 if they could not be "
      "compared");
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster version --json\n"
      "  muster version --check --coordinator login01:7070");
  on_call(*command, action, options, version);
}

}  // namespace muster::cli
