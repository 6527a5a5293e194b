#include "cli/terminal/completion_line.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "cli/command.h"

namespace muster::cli {
namespace {

class CompletionLine : public ::testing::Test {
 protected:
  CompletionLine() { declare_all(app_, action_, nullptr); }

  CompletedWord word(const std::string& line) const {
    const auto typed = parse_typed_line(app_, line);
    return typed ? typed->word : CompletedWord::kAny;
  }
  std::string address(const std::string& line) const {
    const auto coordinator = coordinator_of(parse_typed_line(app_, line).value());
    return coordinator ? coordinator->address : "";
  }

  CLI::App app_{"", "muster"};
  Action action_;
};

TEST_F(CompletionLine, ArgumentsAreCountedWithoutOptionsAndTheirValues) {
  EXPECT_EQ(word("muster cancel "), CompletedWord::kJob);
  EXPECT_EQ(word("muster logs --rank 0 -f --tail=10 "), CompletedWord::kJob);
  EXPECT_EQ(word("muster logs 7 "), CompletedWord::kAny);
  EXPECT_EQ(word("muster goodput 7 "), CompletedWord::kJob);
  EXPECT_EQ(word("muster node exclude gpu"), CompletedWord::kNode);
  EXPECT_EQ(word("muster node exclude gpu-node7 "), CompletedWord::kAny);
  EXPECT_EQ(word("muster node check node7 "), CompletedWord::kNode);
  EXPECT_EQ(word("muster submit -- python3 model_name="), CompletedWord::kAny);
  EXPECT_EQ(word("muster run a.yml model_name=g"), CompletedWord::kKeyValue);
}

TEST_F(CompletionLine, TheValueOfAnOptionIsNoArgument) {
  EXPECT_EQ(word("muster cancel --token-file "), CompletedWord::kFile);
  EXPECT_EQ(word("muster cancel --token-file=/x"), CompletedWord::kFile);
  EXPECT_EQ(word("muster node exclude n --reason "), CompletedWord::kFile);
}

TEST_F(CompletionLine, WordsAreThoseOfAShellWhichRunsNothing) {
  EXPECT_FALSE(parse_typed_line(app_, "muster cancel $(true) "));
  EXPECT_FALSE(parse_typed_line(app_, "muster cancel `true` "));
  EXPECT_FALSE(parse_typed_line(app_, "muster cancel \"7 "));
  EXPECT_FALSE(parse_typed_line(app_, "muster cancel --tls-ca $MUSTER_NO_SUCH_VARIABLE "));
  EXPECT_EQ(parse_typed_line(app_, "muster cancel --tls-ca ~/a\\ b ")->options.at("tls-ca"),
            std::string(std::getenv("HOME")) + "/a b");
}

TEST_F(CompletionLine, TheCoordinatorOfAnUnfinishedLineCounts) {
  EXPECT_EQ(address("muster cancel --coordinator a:1 "), "a:1");
  EXPECT_EQ(address("muster cancel --coordinator a:1 --tls-ca "), "a:1");
  EXPECT_EQ(address("MUSTER_COORDINATOR=b:2 muster cancel "), "b:2");
  EXPECT_EQ(address("muster cancel --coordinator nonsense "), "");
}

TEST_F(CompletionLine, TheEnvironmentsTokenIsForTheEnvironmentsCoordinator) {
  ASSERT_EQ(setenv("MUSTER_TOKEN_FILE", "/token", 1), 0);
  EXPECT_EQ(address("muster cancel --coordinator a:1 "), "");
  EXPECT_EQ(address("muster cancel --coordinator a:1 --token-file b "), "a:1");
  EXPECT_EQ(address("muster cancel "), "127.0.0.1:7070");
  ASSERT_EQ(unsetenv("MUSTER_TOKEN_FILE"), 0);
}

}  // namespace
}  // namespace muster::cli
