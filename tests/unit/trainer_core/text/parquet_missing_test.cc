// Tests a build without Arrow C++.
#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "trainer_core/text/parquet_chunks.h"

namespace muster::trainer {
namespace {

TEST(ParquetMissing, ExplainsWhatIsMissingAndHowToGetIt) {
  const auto refused = open_parquet_chunks({"c4.parquet", InputFormat::kParquet}, "text", {});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.status().message()),
              testing::AllOf(
                  testing::HasSubstr("c4.parquet is Parquet"), testing::HasSubstr("libparquet-dev"),
                  testing::HasSubstr("MUSTER_ARROW_ROOT"), testing::HasSubstr("JSON lines")));
}

}  // namespace
}  // namespace muster::trainer
