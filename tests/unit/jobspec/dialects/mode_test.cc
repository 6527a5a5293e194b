#include <gmock/gmock.h>

#include "tests/unit/jobspec/pasted_lines.h"

namespace muster::jobspec {
namespace {

using ::testing::HasSubstr;

class PaxMode : public PastedLines {};

TEST_F(PaxMode, EvaluationHasNoSteps) {
  const std::string line =
      "CONFIG=GPT126M --tfds_data_dir=/data --job_log_dir=out/a eval_holdout_fraction=0.1 --mode=";
  EXPECT_GT(pasted(line + "train")->train.steps, 0);
  const auto evaluated = pasted(line + "eval");
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  EXPECT_EQ(evaluated->train.steps, 0);
  EXPECT_EQ(evaluated->train.load_parameters_path, "/somewhere/out/a/checkpoints");
  EXPECT_THAT(error_of(pasted(line + "decode_once")), HasSubstr("muster decode --run FOLDER"));
  EXPECT_THAT(error_of(pasted(line + "evall")), HasSubstr("did you mean --mode=eval?"));
  const auto answers = pasted(
      "CONFIG=LLaMA7B EVAL_ONLY=1 CHECKPOINT_RESTORE_PATH=/models/m VOCAB_PATH=/t.model "
      "dataset_type=synthetic eval_tasks=boolq=data/dev.jsonl");
  ASSERT_TRUE(answers.ok()) << answers.status();
  EXPECT_EQ(answers->train.steps, 0);
  EXPECT_EQ(answers->train.eval.tasks, "boolq=/somewhere/data/dev.jsonl");
  EXPECT_GT(pasted("CONFIG=LLaMA7B EVAL_ONLY=0 dataset_type=synthetic")->train.steps, 0);
}

}  // namespace
}  // namespace muster::jobspec
