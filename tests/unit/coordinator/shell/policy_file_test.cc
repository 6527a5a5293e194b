#include "coordinator/shell/policy_file.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <vector>

#include <gtest/gtest.h>

#include "common/files/file_write.h"
#include "tests/unit/temp_folder.h"

namespace muster::coordinator {
namespace {

TEST(QueuePolicyFile, EntriesTakeTheKeysTheyLackFromTheDefaults) {
  const auto policy = parse_queue_policy(R"({
    "half_life_hours": 2,
    "users": {"ada": {"running_gpus_max": 8, "shares": 2.5}},
    "user_defaults": {"running_gpus_max": 4, "waiting_jobs_max": 10, "priority_max": -1},
    "teams": {"vision": {}}})");
  ASSERT_TRUE(policy.ok()) << policy.status();
  EXPECT_EQ(policy->half_life, std::chrono::hours(2));
  const Quota& ada = quota_of(*policy, {false, "ada"});
  EXPECT_EQ(ada.of(QuotaKind::kRunningGpus), 8);
  EXPECT_EQ(ada.of(QuotaKind::kWaitingJobs), 10);
  EXPECT_EQ(ada.priority_max, -1);
  EXPECT_EQ(ada.shares, 2.5);
  EXPECT_EQ(quota_of(*policy, {false, "bob"}).of(QuotaKind::kRunningGpus), 4);
  EXPECT_EQ(quota_of(*policy, {true, "vision"}), Quota());
}

TEST(QueuePolicyFile, ErrorsNameTheKeyTheValueAndWhatWouldBeRight) {
  const struct {
    const char* text;
    const char* expected;
  } kMistakes[] = {
      {"[1]", "it is no JSON object"},
      {"{\"usrs\": {}}", "there is no key usrs: the keys are half_life_hours, user_defaults"},
      {"{\"half_life_hours\": 0}", "half_life_hours is 0: it must be a number from 0.01 to 8760"},
      {"{\"users\": {\"ada\": 3}}", "users.ada is 3: it must be an object"},
      {"{\"users\": {\"ada\": {\"running_gpus_max\": -1}}}",
       "users.ada.running_gpus_max is -1: it must be a whole number from 0 to"},
      {"{\"team_defaults\": {\"shares\": \"2\"}}",
       "team_defaults.shares is \"2\": it must be a number from"},
      {"{\"teams\": {\"a\": {\"gpus\": 2}}}",
       "there is no key teams.a.gpus: the keys are running_ranks_max"},
      {"{\"users\": {\"ada\": {\"priority_max\": 1.5}}}",
       "users.ada.priority_max is 1.5: it must be a whole number from -1000000 to 1000000"},
  };
  for (const auto& mistake : kMistakes)
    EXPECT_THAT(std::string(parse_queue_policy(mistake.text).status().message()),
                testing::StartsWith(mistake.expected));
}

// A file that is wrong for a while changes nothing.
TEST(QueuePolicyFile, IsReadAgainWhenItChanges) {
  TempFolder folder;
  const std::string path = folder.file("policy.json");
  const auto write = [&](const std::string& text) {
    ASSERT_TRUE(write_file_atomically(path, text, {}).ok());
  };
  const auto metrics = std::make_shared<ShellMetrics>();
  const auto is_valid = [&] {
    return metrics->render({}).find("\nmuster_coordinator_queue_policy_valid 1\n") !=
           std::string::npos;
  };
  EXPECT_FALSE(PolicyFile::read(path).ok());
  write(R"({"half_life_hours": 1})");
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Duration> used;
  auto first = PolicyFile::read_or(path, "", *metrics);
  ASSERT_TRUE(first.ok());
  const PolicyFile file(
      path, *std::move(first), std::chrono::milliseconds(5),
      [&](const PolicyFile::Version& version) {
        const std::lock_guard lock(mutex);
        used.push_back(version.policy.half_life);
        changed.notify_all();
        return absl::OkStatus();
      },
      metrics);
  EXPECT_EQ(used.size(), 1U) << "the first version is used before the constructor returns";
  write("{");
  while (is_valid()) std::this_thread::yield();
  write(R"({"half_life_hours": 3})");
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return used.size() == 2; });
  EXPECT_EQ(used.back(), std::chrono::hours(3));
  lock.unlock();
  EXPECT_TRUE(is_valid());
}

// The stored policy, which the loop cannot use at first, while the file is invalid.
TEST(QueuePolicyFile, AVersionIsOfferedUntilItIsUsed) {
  TempFolder folder;
  const std::string path = folder.file("policy.json");
  ASSERT_TRUE(write_file_atomically(path, "{", {}).ok());
  const auto metrics = std::make_shared<ShellMetrics>();
  auto first = PolicyFile::read_or(path, R"({"half_life_hours": 5})", *metrics);
  ASSERT_TRUE(first.ok());
  std::promise<Duration> used;
  int calls = 0;
  const PolicyFile file(
      path, *std::move(first), std::chrono::milliseconds(5),
      [&](const PolicyFile::Version& version) {
        if (++calls < 3) return absl::UnavailableError("the disk is full");
        used.set_value(version.policy.half_life);
        return absl::OkStatus();
      },
      metrics);
  EXPECT_EQ(used.get_future().get(), std::chrono::hours(5));
}

TEST(QueuePolicyFile, TheStoredTextServesWhileTheFileIsInvalid) {
  TempFolder folder;
  const std::string path = folder.file("policy.json");
  const std::string stored = R"({"half_life_hours": 5})";
  ShellMetrics metrics;
  EXPECT_EQ(PolicyFile::read_or(path, stored, metrics)->policy.half_life, std::chrono::hours(5));
  ASSERT_TRUE(write_file_atomically(path, "{", {}).ok());
  EXPECT_EQ(PolicyFile::read_or(path, stored, metrics)->text, stored);
  EXPECT_THAT(std::string(PolicyFile::read_or(path, "", metrics).status().message()),
              testing::HasSubstr("it is no JSON object"));
  ASSERT_TRUE(write_file_atomically(path, R"({"half_life_hours": 1})", {}).ok());
  EXPECT_EQ(PolicyFile::read_or(path, stored, metrics)->policy.half_life, std::chrono::hours(1));
}

}  // namespace
}  // namespace muster::coordinator
