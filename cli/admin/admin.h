// The commands of `muster admin`.
#pragma once

#include "cli/command.h"

namespace muster::cli {

void declare_backup(CLI::App& admin, Action& action);
void declare_profile(CLI::App& admin, Action& action);
void declare_admin_doctor(CLI::App& admin, Action& action);

}  // namespace muster::cli
