// The commands of `muster k8s`. Each source file declares one command.
#pragma once

#include "cli/command.h"

namespace muster::cli {

void declare_k8s_render(CLI::App& k8s, Action& action);
void declare_k8s_switches(CLI::App& k8s, Action& action);

}  // namespace muster::cli
