#include <gmock/gmock.h>

#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "common/objects/object_store.h"

namespace muster {
namespace {

using testing::HasSubstr;

constexpr Duration kWithin = std::chrono::milliseconds(1200);
constexpr Duration kLongerThanWithin = std::chrono::milliseconds(1300);

ChildEnd failed_call(std::string errors) {
  ChildEnd end;
  end.errors = std::move(errors);
  end.exit_code = 1;
  return end;
}

StoreRetry patient() { return {.within = kWithin, .warn = nullptr}; }

// rclone prints nothing while it deletes, so only the limit of the complete call ends it.
TEST(ObjectStoreLimits, ADeletionMayWorkSilentlyForMinutes) {
  ChildOptions seen;
  const ObjectStore store({.within = std::chrono::seconds(60), .warn = nullptr},
                          [&](const auto&, const ChildOptions& options) {
                            seen = options;
                            return ChildEnd{};
                          });
  ASSERT_TRUE(store.remove_files("s3://b/d", {"a", "b"}).ok());
  EXPECT_EQ(seen.first_output_by, Instant::max());
  EXPECT_GT(seen.deadline, monotonic_now() + std::chrono::minutes(9));
  EXPECT_LE(seen.deadline, monotonic_now() + std::chrono::minutes(10));
  ASSERT_TRUE(store.list_names("s3://b/d").ok());
  EXPECT_LE(seen.first_output_by, monotonic_now() + std::chrono::seconds(60));
  ASSERT_TRUE(store.remove("s3://b/d/a").ok());
  EXPECT_LE(seen.first_output_by, monotonic_now() + std::chrono::seconds(60));
}

TEST(ObjectStoreLimits, AFailureAfterALongAttemptIsTriedAgain) {
  int calls = 0;
  const ObjectStore store(patient(), [&](const auto&, const ChildOptions&) {
    if (++calls > 1) return ChildEnd{};
    std::this_thread::sleep_for(kLongerThanWithin);
    return failed_call("2026/11/28 09:44:57 ERROR : b: read tcp: connection reset by peer\n");
  });
  const absl::Status status = store.remove_files("s3://b/d", {"a"});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(calls, 2);
}

// The second attempt has the limit from the first failure, however long it works.
TEST(ObjectStoreLimits, OnlyTheFirstLongAttemptExtendsTheLimit) {
  int calls = 0;
  const ObjectStore store(patient(), [&](const auto&, const ChildOptions&) {
    ++calls;
    std::this_thread::sleep_for(kLongerThanWithin);
    return failed_call("2026/11/28 09:44:57 ERROR : b: read tcp: connection reset by peer\n");
  });
  const absl::Status status = store.remove_files("s3://b/d", {"a"});
  EXPECT_TRUE(absl::IsUnknown(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("connection reset by peer); tried for "));
  EXPECT_EQ(calls, 2);
}

TEST(ObjectStoreLimits, AStoreThatDidNotAnswerWithinTheLimitIsNotTriedAgain) {
  int calls = 0;
  const ObjectStore store(patient(),
                          [&](const auto&, const ChildOptions&) -> absl::StatusOr<ChildEnd> {
                            ++calls;
                            std::this_thread::sleep_for(kLongerThanWithin);
                            return absl::DeadlineExceededError("did not answer in time");
                          });
  EXPECT_TRUE(absl::IsUnknown(store.list_names("s3://b/d").status()));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace muster
