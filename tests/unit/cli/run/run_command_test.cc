#include "cli/run/run_command.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using testing::HasSubstr;

constexpr auto kPatience = std::chrono::seconds(30);

TEST(OutputOf, AnErrorHasTheProgramsMessage) {
  EXPECT_TRUE(absl::IsNotFound(output_of({"no-such-program"}, kPatience).status()));
  EXPECT_THAT(
      std::string(output_of({"sh", "-c", "echo why >&2; exit 3"}, kPatience).status().message()),
      HasSubstr("sh -c ended with 3: why"));
  EXPECT_TRUE(absl::IsAborted(output_of({"sh", "-c", "kill -TERM $$"}, kPatience).status()))
      << "a signal ended it";
  EXPECT_EQ(*output_of({"echo", "so"}, kPatience), "so\n");
}

}  // namespace
}  // namespace muster::cli
