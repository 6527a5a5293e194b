#include "cli/run_command.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using testing::HasSubstr;

constexpr auto kLong = std::chrono::seconds(30);

TEST(OutputOf, AnErrorSaysWhatIsWrong) {
  EXPECT_TRUE(absl::IsNotFound(output_of({"no-such-program"}, kLong).status()));
  EXPECT_THAT(
      std::string(output_of({"sh", "-c", "echo why >&2; exit 3"}, kLong).status().message()),
      HasSubstr("sh -c ended with 3: why"));
  EXPECT_TRUE(absl::IsAborted(output_of({"sh", "-c", "kill -TERM $$"}, kLong).status()))
      << "somebody ended it";
  EXPECT_EQ(*output_of({"echo", "so"}, kLong), "so\n");
}

}  // namespace
}  // namespace muster::cli
