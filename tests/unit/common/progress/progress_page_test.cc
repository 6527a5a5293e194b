#include "common/progress/progress_page.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "common/random/philox.h"
#include "tests/unit/mutate.h"
#include "tests/unit/temp_folder.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

class ProgressPageTest : public ::testing::Test {
 protected:
  void write_page(const std::string& content) const { write_file(path_, content); }
  std::string read_page() const { return read_file(path_); }

  const TempFolder folder_;
  const std::string path_ = folder_.file("progress.0");
};

template <class T>
T at(const std::string& bytes, size_t offset) {
  T value;
  std::memcpy(&value, &bytes.at(offset), sizeof(value));
  return value;
}

const ProgressIdentity kIdentity{.job = 7,
                                 .attempt = 3,
                                 .incarnation = 0x1122334455667788,
                                 .rank = 5,
                                 .local_rank = 1,
                                 .world_size = 8,
                                 .total_steps = 100};

// Reads the offsets of the header's table from the file's bytes.
TEST_F(ProgressPageTest, IsLaidOutAsDocumented) {
  const auto writer = ProgressWriter::create(path_, kIdentity);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ProgressWriter& page = **writer;
  page.set_phase(Phase::kStep, instant_from_ns(1'000));
  page.set_device_peak_tflops(989.5);
  page.set_checkpoint_step(40);
  page.complete_step({.step = 42,
                      .loss = 2.5,
                      .grad_norm = 0.75,
                      .seconds = 0.5,
                      .data_wait_seconds = 0.125,
                      .collective_wait_seconds = 0.0625,
                      .tokens = 4096,
                      .tflops_per_device = 400,
                      .learning_rate = 3e-5},
                     instant_from_ns(2'000));
  page.complete_evaluation(40, 3.5, instant_from_ns(2'500));
  page.set_save_progress(513, 12);
  EXPECT_EQ(page.add_group("fsdp", 4, 2), 0);
  EXPECT_EQ(page.begin_collective(0, CollectiveKind::kAllReduce, "grads", 1 << 20, 9,
                                  instant_from_ns(3'000)),
            1U);

  const std::string bytes = read_page();
  ASSERT_EQ(bytes.size(), 8192U);
  EXPECT_EQ(bytes.substr(0, 8), "MUSTPAGE");
  EXPECT_EQ(at<uint32_t>(bytes, 8), 4U);
  EXPECT_EQ(at<uint32_t>(bytes, 12), 8192U);
  EXPECT_EQ(at<uint64_t>(bytes, 16) % 2, 0U);
  EXPECT_EQ(at<uint64_t>(bytes, 24), 7U);
  EXPECT_EQ(at<uint32_t>(bytes, 32), 3U);
  EXPECT_EQ(at<int32_t>(bytes, 36), 5);
  EXPECT_EQ(at<int32_t>(bytes, 40), 1);
  EXPECT_EQ(at<int32_t>(bytes, 44), 8);
  EXPECT_EQ(at<int32_t>(bytes, 48), getpid());
  EXPECT_EQ(at<uint32_t>(bytes, 52), static_cast<uint32_t>(Phase::kStep));
  EXPECT_EQ(at<uint64_t>(bytes, 56), 0x1122334455667788U);
  EXPECT_GT(at<int64_t>(bytes, 64), 0);
  EXPECT_EQ(at<int64_t>(bytes, 72), 1'000);
  EXPECT_EQ(at<int64_t>(bytes, 88), 2'500) << "an evaluation is progress";
  EXPECT_EQ(at<int64_t>(bytes, 96), 42);
  EXPECT_EQ(at<double>(bytes, 104), 2.5);
  EXPECT_EQ(at<double>(bytes, 112), 0.75);
  EXPECT_EQ(at<double>(bytes, 120), 0.5);
  EXPECT_EQ(at<double>(bytes, 128), 0.5);
  EXPECT_EQ(at<uint64_t>(bytes, 136), 4096U);
  EXPECT_EQ(at<double>(bytes, 144), 400);
  EXPECT_EQ(at<double>(bytes, 152), 989.5);
  EXPECT_EQ(at<double>(bytes, 160), 3e-5);
  EXPECT_EQ(at<int64_t>(bytes, 168), 40);
  EXPECT_EQ(at<int64_t>(bytes, 176), 100);
  EXPECT_EQ(at<uint32_t>(bytes, 184), 1U);
  EXPECT_EQ(at<uint32_t>(bytes, 188), 1U);
  EXPECT_STREQ(&bytes[192], "fsdp");
  EXPECT_EQ(at<uint64_t>(bytes, 192 + 56), 1U);
  EXPECT_EQ(at<uint64_t>(bytes, 192 + 64), 1U);
  EXPECT_EQ(at<uint64_t>(bytes, 192 + 72), 0U);
  EXPECT_EQ(at<uint64_t>(bytes, 192 + 80), 1U << 20);
  EXPECT_EQ(at<uint32_t>(bytes, 192 + 88), static_cast<uint32_t>(CollectiveKind::kAllReduce));
  EXPECT_EQ(at<uint32_t>(bytes, 192 + 92), 9U);
  EXPECT_EQ(at<uint32_t>(bytes, 192 + 96), 4U);
  EXPECT_EQ(at<uint32_t>(bytes, 192 + 100), 2U);
  EXPECT_EQ(at<uint64_t>(bytes, 3520), 1U);
  EXPECT_EQ(at<uint64_t>(bytes, 3520 + 16), 1U << 20);
  EXPECT_EQ(at<int64_t>(bytes, 3520 + 24), 3'000);
  EXPECT_EQ(at<int64_t>(bytes, 3520 + 32), 0);
  EXPECT_STREQ(&bytes[3520 + 40], "grads");
  EXPECT_EQ(at<uint64_t>(bytes, 5824 + 8 * 6), 1U) << "0.5 s is the bound of the seventh bucket";
  EXPECT_EQ(at<double>(bytes, 5824 + 128), 0.5);
  EXPECT_EQ(at<uint32_t>(bytes, 5960 + 36), 513U);
  EXPECT_EQ(at<uint32_t>(bytes, 5960 + 40), 12U);
  EXPECT_EQ(at<uint32_t>(bytes, 5960 + 44), 0U);
  EXPECT_EQ(at<double>(bytes, 6008), 0.125);
  EXPECT_EQ(at<int64_t>(bytes, 6016), 40);
  EXPECT_EQ(at<double>(bytes, 6024), 3.5);
  EXPECT_EQ(at<double>(bytes, 6032), 0.0625);
  EXPECT_EQ(bytes.substr(6040), std::string(2152, '\0'));
}

TEST_F(ProgressPageTest, IsReadableOnlyByItsUser) {
  const mode_t before = umask(022);
  const auto writer = ProgressWriter::create(path_, kIdentity);
  umask(before);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(std::filesystem::status(path_).permissions(), std::filesystem::perms(0600));
}

TEST_F(ProgressPageTest, AReaderReturnsTheWrittenValues) {
  const auto writer = ProgressWriter::create(path_, kIdentity);
  ASSERT_TRUE(writer.ok());
  const auto first = read_progress_page(path_);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->step, -1);
  EXPECT_EQ(first->checkpoint_step, -1);
  EXPECT_EQ(first->phase, Phase::kInit);
  (*writer)->complete_step({.step = 1, .seconds = 1.0, .tokens = 10}, instant_from_ns(1));
  (*writer)->complete_step({.step = 2, .seconds = 2.0, .tokens = 10}, instant_from_ns(2));
  const auto page = read_progress_page(path_);
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->step, 2);
  EXPECT_EQ(page->tokens, 20U);
  EXPECT_DOUBLE_EQ(page->step_seconds_ewma, 1.1);
  EXPECT_EQ(page->step_times.total(), 2U);
  EXPECT_DOUBLE_EQ(page->step_times.seconds, 3.0);
}

TEST_F(ProgressPageTest, CollectivesKeepTheLatestAndCompleteInAnyOrder) {
  const auto writer = ProgressWriter::anonymous(kIdentity);
  const int group = writer->add_group(
      "a-name-that-is-longer-than-all-axes-of-a-mesh-and-a-channel-together", 0, 0);
  const int other = writer->add_group("other", 0, 0);
  for (int i = 0; i < 3 * kProgressRingLength; ++i) {
    writer->begin_collective(group, CollectiveKind::kAllGather, "n", 8, 0, instant_from_ns(i));
  }
  EXPECT_EQ(
      writer->begin_collective(other, CollectiveKind::kBarrier, "n", 0, 0, instant_from_ns(1)), 1U);
  writer->complete_collective(other, 1, instant_from_ns(77));
  const ProgressPage& page = writer->page();
  EXPECT_EQ(page.groups[0].enqueued, 96U);
  EXPECT_EQ(page.groups[0].completed, 0U);
  EXPECT_EQ(page.groups[1].completed, 1U);
  EXPECT_EQ(page.groups[0].name.back(), '\0');
  EXPECT_EQ(page.ring_head, 97U);
  EXPECT_EQ(page.ring[0].completed_ns, 77);
}

TEST_F(ProgressPageTest, MoreGroupsThanTheTableHoldsAreNotRecorded) {
  const auto writer = ProgressWriter::anonymous(kIdentity);
  for (int i = 0; i < kProgressGroupsMax; ++i) EXPECT_EQ(writer->add_group("g", 0, 0), i);
  EXPECT_EQ(writer->add_group("g", 0, 0), -1);
  EXPECT_EQ(writer->begin_collective(-1, CollectiveKind::kSend, "n", 1, 0, instant_from_ns(1)), 0U);
  writer->complete_collective(-1, 0, instant_from_ns(1));
  EXPECT_EQ(writer->page().group_count, static_cast<uint32_t>(kProgressGroupsMax));
}

TEST_F(ProgressPageTest, ReportsTheProblemOfAFile) {
  EXPECT_EQ(read_progress_page(path_).status().code(), absl::StatusCode::kNotFound);
  write_page("");
  EXPECT_EQ(read_progress_page(path_).status().code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(ProgressWriter::create(path_, kIdentity).ok());
  const std::string good = read_page();
  for (const size_t size : {1U, 24U, 4095U}) {
    write_page(good.substr(0, size));
    const auto page = read_progress_page(path_);
    EXPECT_EQ(page.status().code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(page.status().message()), HasSubstr("truncated"));
  }
  std::string other = good;
  other[8] = 1;
  write_page(other);
  EXPECT_THAT(std::string(read_progress_page(path_).status().message()), HasSubstr("version 1"));
  other = good;
  other[0] = 'X';
  write_page(other);
  EXPECT_THAT(std::string(read_progress_page(path_).status().message()), HasSubstr("magic"));
  other = good;
  other[12] = 1;
  write_page(other);
  EXPECT_EQ(read_progress_page(path_).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(read_progress_page(folder_.path()).ok());
}

TEST_F(ProgressPageTest, AWriterThatDiedInsideAnUpdateLeavesAReadablePage) {
  ASSERT_TRUE(ProgressWriter::create(path_, kIdentity).ok());
  std::string torn = read_page();
  torn[16] = static_cast<char>(torn[16] | 1);
  write_page(torn);
  const auto page = read_progress_page(path_);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->sequence % 2, 1U);
  EXPECT_EQ(page->job, 7U);
}

// Whatever bytes a page holds, its indices stay within its tables and its names end.
TEST_F(ProgressPageTest, RandomBytesNeverEscapeTheTables) {
  for (uint64_t round = 0; round < 500; ++round) {
    ProgressPage page;
    auto* words = reinterpret_cast<uint32_t*>(&page);
    for (size_t i = 0; i < sizeof(page) / 16; ++i) {
      const Philox::Block block = Philox{round, 11}(i);
      std::memcpy(&words[4 * i], block.data(), sizeof(block));
    }
    EXPECT_FALSE(validate_progress_page(page).ok());
    page.magic = kProgressPageMagic;
    page.version = kProgressPageVersion;
    page.page_bytes = kProgressPageBytes;
    ASSERT_TRUE(validate_progress_page(page).ok());
    ASSERT_LE(page.group_count, static_cast<uint32_t>(kProgressGroupsMax));
    for (const GroupProgress& group : page.groups) ASSERT_EQ(group.name.back(), '\0');
    for (const CollectiveRecord& record : page.ring) ASSERT_EQ(record.name.back(), '\0');
    EXPECT_FALSE(phase_name(page.phase).empty());
  }
}

// The writer keeps step, tokens and loss in one relation, which a torn page would violate.
TEST_F(ProgressPageTest, ConcurrentReadersSeeOnlyCompleteUpdates) {
  const auto writer = ProgressWriter::create(path_, kIdentity);
  ASSERT_TRUE(writer.ok());
  std::atomic<bool> done{false};
  std::atomic<int> whole{0};
  const auto read_all = [&] {
    while (!done) {
      const auto page = read_progress_page(path_);
      ASSERT_TRUE(page.ok()) << page.status();
      if (page->sequence % 2 != 0 || page->step < 0) continue;
      ASSERT_EQ(page->tokens, static_cast<uint64_t>(page->step) * 3);
      ASSERT_EQ(page->loss, static_cast<double>(page->step) * 0.5);
      ++whole;
    }
  };
  std::thread first(read_all), second(read_all);
  for (int64_t step = 1; step <= 20'000 || whole == 0; ++step) {
    (*writer)->complete_step({.step = step, .loss = static_cast<double>(step) * 0.5, .tokens = 3},
                             instant_from_ns(step));
  }
  done = true;
  first.join();
  second.join();
  EXPECT_GT(whole, 0);
}

TEST_F(ProgressPageTest, AFileThatShrinksWhileItIsReadIsAnErrorAndNoSignal) {
  ASSERT_TRUE(ProgressWriter::create(path_, kIdentity).ok());
  std::atomic<bool> done{false};
  std::thread shrinker([&] {
    while (!done) {
      std::filesystem::resize_file(path_, 10);
      std::filesystem::resize_file(path_, 4096);
    }
  });
  for (int i = 0; i < 3'000; ++i) (void)read_progress_page(path_);
  done = true;
  shrinker.join();
}

TEST_F(ProgressPageTest, MutatedPagesAreRefusedOrStayWithinTheirTables) {
  {
    const auto writer = ProgressWriter::create(path_, kIdentity);
    ASSERT_TRUE(writer.ok()) << writer.status();
    const int group = (*writer)->add_group("data", 0, 0);
    const Instant now = instant_from_ns(1);
    (*writer)->begin_collective(group, CollectiveKind::kAllReduce, "gradients", 4096, 0, now);
  }
  const std::string good = read_page();
  Mutator mutator(5);
  int accepted = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bad = mutator.mutate(good);
    bad.resize(kProgressPageBytes, '\xff');
    write_page(bad);
    const auto page = read_progress_page(path_);
    if (!page.ok()) {
      ASSERT_EQ(page.status().code(), absl::StatusCode::kDataLoss) << page.status();
      continue;
    }
    ++accepted;
    ASSERT_LE(page->group_count, static_cast<uint32_t>(kProgressGroupsMax));
    for (const GroupProgress& group : page->groups) ASSERT_EQ(group.name.back(), '\0');
    for (const CollectiveRecord& record : page->ring) ASSERT_EQ(record.name.back(), '\0');
    ASSERT_FALSE(phase_name(page->phase).empty());
  }
  EXPECT_GT(accepted, 50);
}

TEST_F(ProgressPageTest, CreationInAnUnwritablePlaceNamesThePath) {
  const auto writer = ProgressWriter::create(folder_.file("absent/progress.0"), kIdentity);
  ASSERT_FALSE(writer.ok());
  EXPECT_THAT(std::string(writer.status().message()), HasSubstr("absent/progress.0"));
}

}  // namespace
}  // namespace muster
