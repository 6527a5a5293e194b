#include "cli/slurm/slurm_limit.h"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

SlurmJobState running(int64_t run_seconds, int64_t limit_seconds) {
  return {.state = "RUNNING", .run_seconds = run_seconds, .limit_seconds = limit_seconds};
}

TEST(ScriptLead, IsTheLastOneInTheScript) {
  EXPECT_EQ(script_lead_seconds("#!/bin/bash\n#SBATCH -N 1\n#SBATCH --signal=B:USR1@120  # why\n"),
            120);
  EXPECT_EQ(script_lead_seconds("#!/bin/bash\n#SBATCH -N 8 --requeue --signal=B:USR1@300 -t 5\n"),
            300);
  EXPECT_EQ(
      script_lead_seconds("#!/bin/sh\n#SBATCH --signal=B:USR1@300\n\n#SBATCH --signal=B:USR1@60\n"),
      60);
  // An option of the job's command, another signal, or no signal.
  for (const char* script : {"", "#!/bin/sh\nexec a\n#SBATCH --signal=B:USR1@300\n",
                             "#!/bin/sh\n#SBATCH --signal=B:USR2@300\n",
                             "#!/bin/sh\n# --signal=B:USR1@9\n", "#SBATCH --signal=B:USR1@\n"})
    EXPECT_EQ(script_lead_seconds(script), 0) << script;
}

TEST(EarlySignal, IsDelayedUntilAQuarterOfTheLimitIsLeft) {
  EXPECT_EQ(early_seconds(running(20, 300), 300), 205);
  EXPECT_EQ(early_seconds(running(0, 120), 120), 90);
  EXPECT_EQ(early_seconds(running(150, 300), 160), 75);
  EXPECT_EQ(early_seconds(running(250, 300), 300), 0);
  EXPECT_EQ(early_seconds(running(400, 300), 300), 0);  // Slurm is late
}

TEST(EarlySignal, IsNotDelayedWhenTheLeadIsShort) {
  EXPECT_EQ(early_seconds(running(180, 300), 120), 0);
  EXPECT_EQ(early_seconds(running(10, 1200), 120), 0);  // sent by a user
  EXPECT_EQ(early_seconds(running(10, 1200), 0), 0);
  EXPECT_EQ(early_seconds(running(10, 1200), 1000),
            0);  // the same: Slurm's signal comes within 90 s of its time
  EXPECT_EQ(early_seconds({.state = "RUNNING"}, 300), 0);
}

}  // namespace
}  // namespace muster::cli
