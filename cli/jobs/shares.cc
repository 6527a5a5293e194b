// muster shares: prints the usage, shares and quotas of users and teams.

#include "cli/client.h"
#include "cli/command.h"
#include "cli/jobs/shares_view.h"
#include "cli/terminal/terminal.h"

namespace muster::cli {
namespace {

struct SharesOptions {
  CoordinatorTarget coordinator;
  bool json = false;
};

int shares(const SharesOptions& options) {
  const auto shares = Client(options.coordinator).list_shares();
  if (!shares.ok()) return fail(shares.status());
  return print_result(options.json ? shares_to_json(*shares).dump(2) + "\n"
                                   : describe_shares(*shares));
}

}  // namespace

void declare_shares(CLI::App& app, Action& action) {
  auto options = std::make_shared<SharesOptions>();
  CLI::App* command = app.add_subcommand(
      "shares", "Show the usage, shares and quotas of users and teams (--queue-policy)");
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster shares\n"
      "  muster shares --json | jq '.shares[] | select(.user == \"ada\")'");
  on_call(*command, action, options, shares);
}

}  // namespace muster::cli
