#include "trainer_core/evaluation/eval_task.h"

#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/paths.h"
#include "tests/unit/temp_folder.h"
#include "trainer_core/evaluation/task_lines.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class EvalTasks : public testing::Test {
 protected:
  void SetUp() override {
    auto tokenizer = Tokenizer::load(source_dir() + "/tests/golden/tokenizers/gpt2.json");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    options_ = {.seq_len = 60, .truncate = false, .bos_id = tokenizer_->eos_id(), .add_bos = false};
  }

  absl::StatusOr<EvalTask> load(const std::string& task, const std::string& lines) {
    std::ofstream(folder_.file("a.jsonl")) << lines;
    return EvalTask::load({task, folder_.file("a.jsonl")}, *tokenizer_, options_);
  }
  std::string problem(const std::string& task, const std::string& lines) {
    return std::string(load(task, lines).status().message());
  }

  TempFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ScoringOptions options_;
};

TEST_F(EvalTasks, BadLinesNameFileLineAndField) {
  const std::string where = absl::StrCat("eval_tasks: boolq: ", folder_.file("a.jsonl"), ":3: ");
  const std::string good = R"({"passage": "p", "question": "q", "answer": true})";
  EXPECT_EQ(problem("boolq", good + "\n\n" + R"({"passage": "p", "answer": true})"),
            where + "the field \"question\" is missing; it must be a string");
  EXPECT_EQ(problem("boolq", good + "\n\n" + R"({"passage": "p", "question": "q", "answer": 3})"),
            where + "the field \"answer\" is 3; it must be true or false");
  EXPECT_THAT(problem("boolq", good + "\n\n{\"passage\": "),
              HasSubstr(where + "is no JSON object"));
  EXPECT_THAT(problem("choice", R"({"context": "c", "choices": ["a"], "gold": 0})"),
              HasSubstr("\"choices\" is [\"a\"]; it must be a list of 2 to 1000 strings"));
  EXPECT_THAT(problem("choice", R"({"context": "c", "choices": ["a", "b"], "gold": 2})"),
              HasSubstr("\"gold\" is 2; it must be an index below 2"));
  EXPECT_THAT(problem("lambada", R"({"text": "word"})"), HasSubstr("no second word to predict"));
  EXPECT_THAT(problem("loglikelihood", R"({"context": "c", "continuation": ""})"),
              HasSubstr("the continuation has no token of its own"));
  EXPECT_THAT(problem("lambada", "\n\n"), HasSubstr("a.jsonl has no line"));
  EXPECT_THAT(problem("perplexity", R"({"text": ""})"), HasSubstr("a.jsonl has no token to score"));
}

TEST_F(EvalTasks, DeeplyNestedLinesAreRejected) {
  constexpr size_t kDepth = 200'000;
  const std::string open(kDepth, '['), close(kDepth, ']');
  for (const std::string& value : {open + close, open}) {
    EXPECT_THAT(problem("lambada", absl::StrCat("{\"text\": ", value, "}")),
                HasSubstr("a.jsonl:1: nests values more than 100 deep"));
    EXPECT_THAT(problem("lambada", value), HasSubstr("nests values more than 100 deep"));
  }
  EXPECT_THAT(problem("lambada", R"({"text": [[1]]})"), HasSubstr("\"text\" is [[1]]"));
}

// The tokenizer joins characters of context and continuation to one token.
TEST_F(EvalTasks, ContextsKeepTheirTokensWhereATokenCrossesTheBoundary) {
  const std::vector<int32_t> before = *tokenizer_->encode(" t");
  const std::vector<int32_t> whole = *tokenizer_->encode(" the word");
  ASSERT_LT(before.size(), whole.size());
  ASSERT_NE(before, std::vector<int32_t>(whole.begin(), whole.begin() + before.size()));
  std::vector<int32_t> tokens = before;
  tokens.insert(tokens.end(), whole.begin() + before.size(), whole.end());
  auto task = load("loglikelihood", R"({"context": " t", "continuation": "he word"})");
  ASSERT_TRUE(task.ok()) << task.status();
  EXPECT_EQ(
      task->take_requests(),
      (std::vector<ScoredTokens>{{tokens, static_cast<int32_t>(whole.size() - before.size())}}));
}

TEST_F(EvalTasks, MissingFilesAndUnknownTasksNameWhatThereIs) {
  std::ofstream(folder_.file("dev.jsonl")) << "{}\n";
  const auto of = [&](const std::string& file) {
    return std::string(EvalTask::load({"boolq", file}, *tokenizer_, options_).status().message());
  };
  EXPECT_THAT(of(folder_.file("test.jsonl")),
              AllOf(HasSubstr("there is no such file"), HasSubstr("has dev.jsonl")));
  EXPECT_THAT(of(folder_.path()), HasSubstr("is a folder; give a file of it: dev.jsonl"));
  EXPECT_THAT(std::string(parse_eval_tasks("lambda=x").status().message()),
              AllOf(HasSubstr("there is no task \"lambda\" (did you mean lambada?)"),
                    HasSubstr("loglikelihood, perplexity")));
  EXPECT_THAT(std::string(parse_eval_tasks("boolq").status().message()),
              HasSubstr("boolq has no file; give boolq=FILE"));
  EXPECT_THAT(std::string(parse_eval_tasks("boolq=a,boolq=b").status().message()),
              HasSubstr("boolq is given twice"));
  EXPECT_THAT(std::string(parse_eval_tasks("boolq=a,b.jsonl").status().message()),
              HasSubstr("the path a,b.jsonl of boolq has a comma"));
}

TEST_F(EvalTasks, LongContextsAreAnErrorOrLoseTheirBeginning) {
  std::string context;
  for (int i = 0; i < 30; ++i) context += "a b ";
  context += "c";
  const std::string line =
      absl::StrCat(R"({"context": ")", context, R"(", "continuation": " d e"})");
  const std::vector<int32_t> whole = *tokenizer_->encode(context + " d e");
  const size_t scored = whole.size() - tokenizer_->encode(context)->size();
  options_.seq_len = 20;
  EXPECT_THAT(problem("loglikelihood", line),
              AllOf(HasSubstr(absl::StrCat(" have ", whole.size(),
                                           " tokens, but a sequence has 20 (max_target_length)")),
                    HasSubstr("eval_truncate=true")));
  options_.truncate = true;
  auto task = load("loglikelihood", line);
  ASSERT_TRUE(task.ok()) << task.status();
  EXPECT_EQ(
      task->take_requests(),
      (std::vector<ScoredTokens>{{{whole.end() - 21, whole.end()}, static_cast<int32_t>(scored)}}));
  options_.seq_len = 1;
  EXPECT_THAT(problem("loglikelihood", line),
              HasSubstr(absl::StrCat("the continuation has ", scored, " tokens")));
}

// Compares the metrics of two samples with figures by hand.
TEST_F(EvalTasks, MetricsHaveStandardErrors) {
  auto task = load("loglikelihood", R"({"context": "a", "continuation": " b"})"
                                    "\n"
                                    R"({"context": "a", "continuation": " c"})");
  ASSERT_TRUE(task.ok()) << task.status();
  const std::vector<TargetScore> scores = {{-1, true}, {-3, false}};
  const TaskResult result = task->result(scores);
  EXPECT_EQ(result.samples, 2U);
  EXPECT_EQ(result.metrics[0], (TaskMetric{"acc", 0.5, 0.5}));
  EXPECT_NEAR(result.metrics[1].value, std::exp(2), 1e-12);
  EXPECT_NEAR(*result.metrics[1].standard_error, std::exp(2), 1e-12);
  EXPECT_EQ(task->sample_lines(scores),
            "{\"line\":1,\"log_likelihood\":-1.0,\"is_greedy\":true}\n"
            "{\"line\":2,\"log_likelihood\":-3.0,\"is_greedy\":false}\n");

  auto choice = load("choice", R"({"context": "a", "choices": [" b", " bcdefg"], "gold": 1})");
  ASSERT_TRUE(choice.ok()) << choice.status();
  const std::vector<TargetScore> of_choices = {{-1, true}, {-3, false}};
  const TaskResult chosen = choice->result(of_choices);
  // -3 / 6 characters is larger than -1 / 1.
  EXPECT_EQ(chosen.metrics, (std::vector<TaskMetric>{{"acc", 0, {}}, {"acc_norm", 1, {}}}));
}

TEST(TaskLines, WordsAndCharacters) {
  EXPECT_EQ(word_count("two words"), 2U);
  EXPECT_EQ(word_count(" a \u3000 b\n"), 4U);
  EXPECT_EQ(characters_of_choice(" größe"), 5U);
  EXPECT_EQ(trailing_space("a \t\u00a0\n"), 5U);
}

}  // namespace
}  // namespace muster::trainer
