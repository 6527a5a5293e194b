#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include "cli/command.h"
#include "daemon/endpoint.h"
#include "daemon/trust_options.h"

namespace muster::cli {
namespace {

// Validates the addresses as muster-worker does.
std::string checked_addresses(const std::string& text) {
  const auto coordinators = daemon::parse_coordinators(text);
  if (coordinators.ok()) return text;
  throw CLI::ValidationError(std::string(coordinators.status().message()));
}

}  // namespace

void add_coordinator_address_option(CLI::App& command, std::string& address) {
  address = "127.0.0.1:7070";
  const auto take = [&address](const std::string& text) { address = checked_addresses(text); };
  command
      .add_option_function<std::string>(
          "--coordinator", take,
          "The coordinator's address, or the addresses of several that share a store")
      ->envname("MUSTER_COORDINATOR")
      ->type_name("HOST:PORT,…")
      ->default_str(address);
}

void add_coordinator_option(CLI::App& command, CoordinatorTarget& coordinator) {
  add_coordinator_address_option(command, coordinator.address);
  daemon::add_trust_options(command, coordinator.trust, /*environment=*/true);
}

CLI::Option* add_job_argument(CLI::App& command, uint64_t& job) {
  const auto take = [&job](const std::string& text) {
    if (absl::SimpleAtoi(text, &job) && job > 0) return;
    throw CLI::ValidationError(
        absl::StrCat("job ", text, ": must be a positive number (see `muster list`)"));
  };
  return command.add_option_function<std::string>("job", take, "The job's number")
      ->required()
      ->type_name("JOB");
}

void add_json_option(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "Print JSON for programs");
}

}  // namespace muster::cli
