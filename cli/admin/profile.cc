// muster admin profile: where the coordinator spends its CPU time, and what occupies its memory.
#include <memory>
#include <string>

#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

#include "cli/admin/admin.h"
#include "cli/admin/received_file.h"
#include "cli/client.h"
#include "cli/terminal/terminal.h"
#include "daemon/help.h"

namespace muster::cli {
namespace {

// The coordinator's limits.
constexpr double kSecondsMin = 1;
constexpr double kSecondsMax = 300;

struct ProfileOptions {
  std::string out;
  double seconds = 30;
  bool heap = false;
  CoordinatorTarget coordinator;
  bool json = false;
};

int profile(const ProfileOptions& options) {
  v1::TakeProfileRequest request;
  request.set_kind(options.heap ? v1::PROFILE_KIND_HEAP : v1::PROFILE_KIND_CPU);
  if (!options.heap) request.set_seconds(options.seconds);
  ReceivedFile file(options.out);
  const absl::Status status = file.receive(
      [&](const auto& take) { return Client(options.coordinator).take_profile(request, take); });
  if (!status.ok()) return fail(status);
  if (options.json) {
    const nlohmann::json out = {
        {"file", options.out}, {"bytes", file.bytes()}, {"kind", options.heap ? "heap" : "cpu"}};
    return print_result(out.dump(2) + "\n");
  }
  return print_result(absl::StrFormat("%s: %s, %.1f KiB. Read it: go tool pprof -top %s\n",
                                      options.out, options.heap ? "heap in use" : "CPU time",
                                      static_cast<double>(file.bytes()) / 1024, options.out));
}

}  // namespace

void declare_profile(CLI::App& admin, Action& action) {
  auto options = std::make_shared<ProfileOptions>();
  CLI::App* command = admin.add_subcommand(
      "profile", "Write a profile of the coordinator's CPU time or heap, for pprof");
  command->group("Commands");
  command
      ->add_option("--out", options->out,
                   "The profile; an existing file is replaced when the new one is complete")
      ->type_name("FILE")
      ->required();
  CLI::Option* seconds = command
                             ->add_option("--seconds", options->seconds,
                                          "Sample the CPU time of all threads this long")
                             ->type_name("SECONDS")
                             ->capture_default_str()
                             ->check(daemon::number(kSecondsMin, kSecondsMax));
  command
      ->add_flag("--heap", options->heap,
                 "Instead, the allocations in use, from a sample per 512 KiB")
      ->excludes(seconds);
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "Names of functions are in the file: pprof needs neither the program nor this machine.\n\n"
      "Examples:\n"
      "  muster admin profile --seconds 30 --out cpu.pb && go tool pprof -top cpu.pb\n"
      "  muster admin profile --heap --out heap.pb && go tool pprof -http=:8080 heap.pb");
  on_call(*command, action, options, profile);
}

}  // namespace muster::cli
