#include "trainer_core/data/prefetch.h"

#include <atomic>
#include <latch>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

// A batch's first token identifies the position at which it was read.
class PlaceSource : public BatchSource {
 public:
  explicit PlaceSource(std::atomic<int>& reads) : reads_(reads) {}

  absl::Status fill(uint64_t first, int32_t skipped, const SequenceSpans& out) override {
    ++reads_;
    if (first == kBroken) return absl::DataLossError("the shard is damaged");
    out.tokens[0] = static_cast<int32_t>(first) * 100 + skipped;
    return absl::OkStatus();
  }

  static constexpr uint64_t kBroken = 77;

 private:
  std::atomic<int>& reads_;
};

class PrefetcherTest : public testing::Test {
 protected:
  int32_t take(uint64_t first, int32_t micro_batch) {
    const auto batch = prefetcher_->take({first, micro_batch});
    EXPECT_TRUE(batch.ok()) << batch.status();
    return (*batch)->tokens[0];
  }

  std::atomic<int> reads_{0};
  const BatchSequence order_{
      .sequences = 2, .tokens = 4, .micro_batches = 3, .samples_per_step = 7};
  std::unique_ptr<Prefetcher> prefetcher_ =
      Prefetcher::start(std::make_unique<PlaceSource>(reads_), order_);
};

TEST_F(PrefetcherTest, ReturnsTheBatchOfEachPositionInOrderAndAfterAnyJump) {
  for (const uint64_t first : {0, 7, 14, 700, 707, 7, 7, 14, 0}) {  // next, restart, back, repeat
    for (int32_t i = 0; i < 3; ++i)
      ASSERT_EQ(take(first, i), static_cast<int32_t>(first) * 100 + 2 * i);
    ASSERT_EQ(take(first, 1), static_cast<int32_t>(first) * 100 + 2);
    ASSERT_EQ(take(first, 2), static_cast<int32_t>(first) * 100 + 4);
  }
}

TEST_F(PrefetcherTest, ReadsNoMoreThanAFewBatchesAhead) {
  take(0, 0);
  for (int i = 0; i < 100 && reads_ < 3; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(reads_, 3) << "nothing, or not enough, was read ahead";
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(reads_, 3);
  take(0, 1);
  take(0, 2);
  for (int i = 0; i < 100 && reads_ < 5; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(reads_, 5) << "a batch was read twice";
}

TEST_F(PrefetcherTest, AnErrorComesWithTheBatchThatHasIt) {
  EXPECT_EQ(take(70, 2), 7004);  // 77 is read ahead
  const auto broken = prefetcher_->take({77, 0});
  EXPECT_EQ(broken.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(take(84, 0), 8400);
}

}  // namespace
}  // namespace muster::trainer
