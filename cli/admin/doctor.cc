// muster admin doctor: checks a coordinator and its fleet.
#include <algorithm>
#include <iterator>

#include "cli/admin/admin.h"
#include "cli/admin/doctor_checks.h"
#include "cli/client.h"
#include "cli/terminal/terminal.h"
#include "common/time/time.h"
#include "common/version.h"

namespace muster::cli {
namespace {

struct DoctorOptions {
  CoordinatorTarget coordinator;
  bool json = false;
};

int doctor(const DoctorOptions& options) {
  Client client(options.coordinator);
  std::vector<Finding> findings;
  const int64_t requested = wall_clock_unix_ns();
  const auto coordinator = client.get_coordinator();
  const int64_t answered = wall_clock_unix_ns();
  if (coordinator.ok()) {
    findings = examine_coordinator(*coordinator, kVersion, requested, answered);
  } else if (absl::IsUnimplemented(coordinator.status())) {
    findings.push_back({"version", false, "the coordinator is older than this command",
                        "update it; until then only its workers are checked"});
  } else {
    return fail(coordinator.status());
  }
  if (const auto workers = client.list_workers(); workers.ok()) {
    std::ranges::move(examine_workers(*workers, coordinator.ok() ? coordinator->version() : "",
                                      coordinator.ok() ? coordinator->max_fds() : 0),
                      std::back_inserter(findings));
  } else {
    findings.push_back({"workers", false, std::string(workers.status().message()),
                        "see docs/runbooks/coordinator-late.md"});
  }
  return print_findings(findings, options.json);
}

}  // namespace

void declare_admin_doctor(CLI::App& admin, Action& action) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = admin.add_subcommand(
      "doctor", "Check a coordinator and its fleet; exit code 1 if something is wrong");
  command->group("Commands");
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster admin doctor\n"
      "  muster admin doctor --json | jq -r '.checks[] | select(.ok | not) | .advice'");
  on_call(*command, action, options, doctor);
}

}  // namespace muster::cli
