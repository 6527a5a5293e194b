#include "coordinator/shell/web/shared_answers.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <deque>
#include <utility>

#include <gtest/gtest.h>

#include "coordinator/shell/web/gzip.h"

namespace muster::coordinator {
namespace {

using std::chrono::milliseconds;
using ::testing::SizeIs;

// Answers whose data the test provides.
class SharedAnswersTest : public ::testing::Test {
 protected:
  void use(SharedAnswersOptions options) {
    options.content_type = "text/plain";
    if (options.every == Duration{}) options.every = std::chrono::hours(1);
    answers_ = std::make_unique<SharedAnswers>(texts_, options);
  }
  ~SharedAnswersTest() override { texts_.stop(); }

  void get(const std::string& key, const std::string& accepts = "") {
    daemon::HttpRequest request;
    request.headers["accept-encoding"] = accepts;
    answers_->get(
        key, request,
        [this](daemon::HttpResponse response) {
          const std::lock_guard lock(mutex_);
          replies_.push_back(std::move(response));
          changed_.notify_all();
        },
        [this](SharedAnswers::Done done) {
          const std::lock_guard lock(mutex_);
          if (!refusal_.ok()) return refusal_;
          begun_.push_back(std::move(done));
          changed_.notify_all();
          return absl::OkStatus();
        });
  }
  // Waits for the next answer that is begun.
  SharedAnswers::Done next() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(10), [&] { return !begun_.empty(); }));
    if (begun_.empty()) return [](const auto&) {};
    SharedAnswers::Done done = std::move(begun_.front());
    begun_.pop_front();
    return done;
  }
  void complete(const std::string& text, Duration cost = {}) {
    next()(SharedAnswers::Data{.cost = cost, .text = [text] { return text; }});
  }
  size_t begun() {
    const std::lock_guard lock(mutex_);
    return begun_.size();
  }
  std::vector<daemon::HttpResponse> replies(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(10),
                                  [&] { return replies_.size() >= count; }));
    return std::exchange(replies_, {});
  }
  static std::string text_of(const daemon::HttpResponse& response) {
    return response.shared_body != nullptr ? *response.shared_body : response.body;
  }

  daemon::WorkPool texts_{1, 64};
  std::unique_ptr<SharedAnswers> answers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<SharedAnswers::Done> begun_;
  absl::Status refusal_;
  std::vector<daemon::HttpResponse> replies_;
};

TEST_F(SharedAnswersTest, AnAnswerIsMadeOnceForAllViewers) {
  use({.stored_max = 8});
  for (int viewer = 0; viewer < 20; ++viewer) get("a");
  EXPECT_EQ(begun(), 1U) << "also before the first answer";
  complete("table");
  for (const auto& reply : replies(20)) EXPECT_EQ(text_of(reply), "table");
  get("a");
  EXPECT_EQ(text_of(replies(1).front()), "table");
  EXPECT_EQ(begun(), 0U);
}

TEST_F(SharedAnswersTest, AFailureReachesAllWhoWait) {
  use({.stored_max = 8});
  get("a");
  get("a");
  next()(absl::NotFoundError("the job has ended"));
  for (const auto& reply : replies(2)) EXPECT_EQ(reply.status, 404);
  refusal_ = absl::UnavailableError("the disk is full");
  get("a");
  EXPECT_EQ(replies(1).front().status, 503);
  refusal_ = absl::OkStatus();
  get("a");
  complete("again");
  EXPECT_EQ(text_of(replies(1).front()), "again");
}

TEST_F(SharedAnswersTest, AllAnswersHaveOneBudget) {
  use({.every = milliseconds(1), .cost_share = 40, .stored_max = 8, .refuses_debtors = true});
  get("a");
  get("b");
  EXPECT_EQ(begun(), 1U) << "one at a time";
  complete("a", milliseconds(250));
  EXPECT_EQ(text_of(replies(1).front()), "a");
  complete("b", milliseconds(250));
  EXPECT_EQ(text_of(replies(1).front()), "b");
  // Twenty seconds are to be paid.
  get("a");
  EXPECT_EQ(text_of(replies(1).front()), "a") << "the stored one";
  get("c");
  const daemon::HttpResponse refused = replies(1).front();
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.headers, ::testing::Contains(::testing::Pair("Retry-After", ::testing::_)));
  EXPECT_EQ(begun(), 0U);
}

TEST_F(SharedAnswersTest, AnswersThatViewersWaitForAreNotRemoved) {
  use({.at_once = 3, .stored_max = 1});
  for (const char* key : {"a", "b", "c"}) get(key);
  EXPECT_EQ(begun(), 3U);
  for (const char* text : {"a", "b", "c"}) complete(text);
  EXPECT_THAT(replies(3), SizeIs(3));
  get("c");
  EXPECT_EQ(text_of(replies(1).front()), "c") << "the newest is stored";
  get("a");
  EXPECT_EQ(begun(), 1U) << "the others are not";
  complete("a");
}

TEST_F(SharedAnswersTest, AnActionsEffectIsInTheNextAnswer) {
  use({.stored_max = 8});
  get("nodes");
  complete("admitted");
  replies(1);
  answers_->expire();
  get("nodes");
  complete("excluded");
  EXPECT_EQ(text_of(replies(1).front()), "excluded");
}

TEST_F(SharedAnswersTest, LargeAnswersAreCompressedForThoseWhoTakeIt) {
  use({.has_etags = true, .stored_max = 8});
  const std::string large(size_t{1} << 20, 'x');
  get("a", "gzip, br");
  complete(large);
  const daemon::HttpResponse reply = replies(1).front();
  EXPECT_EQ(unzipped(text_of(reply)), large);
  EXPECT_THAT(reply.headers, ::testing::Contains(::testing::Pair("Content-Encoding", "gzip")));
  get("a");
  EXPECT_EQ(text_of(replies(1).front()), large);
}

}  // namespace
}  // namespace muster::coordinator
