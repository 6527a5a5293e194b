#include "trainer_core/startup/command_line.h"

#include <gmock/gmock.h>

#include <vector>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

using testing::HasSubstr;

const CommandOptions kOptions{.values = {"config", "max-tokens", "top-p"}, .switches = {"latest"}};

absl::StatusOr<CommandLine> parse(const std::vector<std::string_view>& arguments) {
  return CommandLine::parse(arguments, kOptions);
}

TEST(CommandLine, ReadsBothSpellings) {
  const auto line = parse({"--config", "a.json", "--max-tokens=12", "--latest", "--top-p", "0.5"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->text("config"), "a.json");
  EXPECT_TRUE(line->has("latest"));
  EXPECT_EQ(*line->integer("max-tokens", 1, 1, 100), 12);
  EXPECT_EQ(*line->number("top-p", 1, 0, 1), 0.5);
  EXPECT_EQ(line->text("none", "x"), "x");
}

TEST(CommandLine, ErrorsNameTheOption) {
  EXPECT_THAT(std::string(parse({"--confg", "a"}).status().message()),
              HasSubstr("did you mean --config?"));
  EXPECT_THAT(std::string(parse({"--config"}).status().message()),
              HasSubstr("--config needs a value"));
  EXPECT_THAT(std::string(parse({"--config=a", "--config=b"}).status().message()),
              HasSubstr("given twice"));
  EXPECT_THAT(std::string(parse({"a.json"}).status().message()),
              HasSubstr("unexpected argument \"a.json\""));
  EXPECT_FALSE(parse({"--latest=yes"}).ok());
  const auto line = parse({"--max-tokens", "many", "--top-p", "2"});
  ASSERT_TRUE(line.ok());
  EXPECT_THAT(std::string(line->integer("max-tokens", 1, 1, 100).status().message()),
              HasSubstr("--max-tokens is \"many\""));
  EXPECT_FALSE(line->number("top-p", 1, 0, 1).ok());
}

}  // namespace
}  // namespace muster::trainer
