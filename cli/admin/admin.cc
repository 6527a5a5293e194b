// muster admin: operations on the coordinator itself.
#include "cli/admin/admin.h"

namespace muster::cli {

void declare_admin(CLI::App& app, Action& action) {
  CLI::App* admin =
      app.add_subcommand("admin", "Check and profile a coordinator, and copy its state");
  admin->require_subcommand(1);
  admin->footer(
      "Other operations:\n"
      "  muster node exclude NODE --reason …             # cordon: place nothing on it\n"
      "  muster node exclude NODE --reason … --evacuate  # drain: jobs continue elsewhere\n"
      "  muster node admit NODE                          # uncordon\n"
      "Certificates and tokens are rotated by replacing their files: the coordinator reads them "
      "again\nwithin seconds (docs/trust.md).\n\n"
      "Example:\n  muster admin doctor");
  declare_admin_doctor(*admin, action);
  declare_backup(*admin, action);
  declare_profile(*admin, action);
}

}  // namespace muster::cli
