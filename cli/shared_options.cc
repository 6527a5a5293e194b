#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include "cli/command.h"
#include "daemon/trust_options.h"

namespace muster::cli {
namespace {

// What follows the last colon of host:port; names that gRPC alone understands pass.
std::string check_port(const std::string& address) {
  const std::string port = address.substr(address.rfind(':') + 1);
  if (address.find(':') == std::string::npos || port.empty() ||
      port.find_first_not_of("0123456789") != std::string::npos) {
    return "";
  }
  int number = 0;
  if (absl::SimpleAtoi(port, &number) && number >= 1 && number <= 65535) return "";
  return absl::StrCat(address, ": port ", port, " is not between 1 and 65535");
}

}  // namespace

void add_coordinator_address_option(CLI::App& command, std::string& address) {
  address = "127.0.0.1:7070";
  command.add_option("--coordinator", address, "The coordinator's address")
      ->envname("MUSTER_COORDINATOR")
      ->type_name("HOST:PORT")
      ->check(CLI::Validator(check_port, ""))
      ->capture_default_str();
}

void add_coordinator_option(CLI::App& command, CoordinatorTarget& coordinator) {
  add_coordinator_address_option(command, coordinator.address);
  daemon::add_trust_options(command, coordinator.trust, /*environment=*/true);
}

CLI::Option* add_job_argument(CLI::App& command, uint64_t& job) {
  const auto take = [&job](const std::string& text) {
    if (absl::SimpleAtoi(text, &job) && job > 0) return;
    throw CLI::ValidationError(
        absl::StrCat("job ", text, ": a positive number is wanted (see `muster list`)"));
  };
  return command.add_option_function<std::string>("job", take, "The job's number")
      ->required()
      ->type_name("JOB");
}

void add_json_option(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "Print JSON for programs");
}

}  // namespace muster::cli
