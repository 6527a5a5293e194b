// muster admin backup: a consistent copy of the coordinator's state.
#include <memory>
#include <string>

#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

#include "cli/admin/admin.h"
#include "cli/admin/received_file.h"
#include "cli/client.h"
#include "cli/terminal/terminal.h"

namespace muster::cli {
namespace {

struct BackupOptions {
  std::string out;
  CoordinatorTarget coordinator;
  bool json = false;
};

int backup(const BackupOptions& options) {
  ReceivedFile file(options.out);
  const absl::Status status = file.receive(
      [&](const auto& take) { return Client(options.coordinator).backup_state(take); });
  if (!status.ok()) return fail(status);
  if (options.json) {
    const nlohmann::json out = {
        {"file", options.out}, {"bytes", file.bytes()}, {"sha256", file.sha256()}};
    return print_result(out.dump(2) + "\n");
  }
  return print_result(absl::StrFormat(
      "%s: %.1f MiB, integrity checked. It has the environments of jobs: store it like a secret.\n",
      options.out, static_cast<double>(file.bytes()) / (1 << 20)));
}

}  // namespace

void declare_backup(CLI::App& admin, Action& action) {
  auto options = std::make_shared<BackupOptions>();
  CLI::App* command = admin.add_subcommand(
      "backup", "Copy the coordinator's state into a file, while the coordinator works");
  command->group("Commands");
  command
      ->add_option("--out", options->out,
                   "The copy; an existing file is replaced when the new one is complete")
      ->type_name("FILE")
      ->required();
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "Restore: stop the coordinator, move STATE_DIR/muster.db, muster.db-wal and muster.db-shm "
      "away,\ncopy the file to STATE_DIR/muster.db, start the coordinator. Jobs that ran start "
      "again from their\ncheckpoints; later submissions are lost (docs/recovery.md).\n\n"
      "Example:\n  muster admin backup --out /backup/muster-$(date +%F).db");
  on_call(*command, action, options, backup);
}

}  // namespace muster::cli
