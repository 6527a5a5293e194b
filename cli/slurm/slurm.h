// The commands of `muster slurm`. Each source file declares one command.
#pragma once

#include "cli/command.h"

namespace muster::cli {

void declare_slurm_run(CLI::App& slurm, Action& action);
void declare_slurm_submit(CLI::App& slurm, Action& action);
void declare_slurm_fleet(CLI::App& slurm, Action& action);
void declare_slurm_worker(CLI::App& slurm, Action& action);

}  // namespace muster::cli
