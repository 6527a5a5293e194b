// muster slurm: jobs and fleets on a Slurm cluster.
#include "cli/slurm/slurm.h"

namespace muster::cli {

void declare_slurm(CLI::App& app, Action& action) {
  CLI::App* slurm =
      app.add_subcommand("slurm", "Run jobs, and a fleet's workers, on a Slurm cluster");
  slurm->require_subcommand(1);
  slurm->footer(
      "Example:\n"
      "  muster slurm submit --insecure -N 8 -A ACCOUNT -p PARTITION configs/base.yml "
      "model_name=llama2-7b "
      "run_name=first");
  declare_slurm_submit(*slurm, action);
  declare_slurm_run(*slurm, action);
  declare_slurm_fleet(*slurm, action);
  declare_slurm_worker(*slurm, action);
}

}  // namespace muster::cli
