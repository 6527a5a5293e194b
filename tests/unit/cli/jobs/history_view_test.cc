#include "cli/jobs/history_view.h"

#include <string>

#include <gtest/gtest.h>

#include "daemon/json/job_json.h"

namespace muster::cli {
namespace {

constexpr int64_t kNsOfSecond = 1'000'000'000;
constexpr int64_t kHistoryStart = 1'700'000'000 * kNsOfSecond;

v1::GetJobHistoryResponse two_attempts() {
  v1::GetJobHistoryResponse history;
  v1::JobAttempt& current = *history.add_attempts();
  current.set_job_id(7);
  current.set_attempt(2);
  current.set_started_unix_ns(kHistoryStart + 200 * kNsOfSecond);
  current.set_nodes(2);
  current.set_ranks(16);
  current.set_workers("node[1,3]");
  current.set_first_step(-1);
  current.set_last_step(-1);
  v1::JobAttempt& first = *history.add_attempts();
  first.set_job_id(7);
  first.set_attempt(1);
  first.set_started_unix_ns(kHistoryStart);
  first.set_up_unix_ns(kHistoryStart + 4 * kNsOfSecond);
  first.set_ended_unix_ns(kHistoryStart + 190 * kNsOfSecond);
  first.set_nodes(2);
  first.set_ranks(16);
  first.set_workers("node[1-2]");
  first.set_first_step(0);
  first.set_last_step(120);
  first.set_end("rank 9 on node2 was killed by signal 9\x1b");
  first.set_incident_id(3);
  first.set_revision(4);
  return history;
}

TEST(HistoryView, EachAttemptIsARow) {
  v1::GetJobHistoryResponse history = two_attempts();
  EXPECT_EQ(
      describe_history(history, kHistoryStart + 230 * kNsOfSecond, 200),
      "ATTEMPT  STARTED (UTC)        ALL UP  LASTED  RANKS  NODES      REV  STEPS     LOST  END\n"
      "2        2023-11-14 22:16:40  -       30s     16     node[1,3]  -    -         -     (it "
      "has "
      "not ended)\n"
      "1        2023-11-14 22:13:20  4s      3m 10s  16     node[1-2]  4    0 to 120  -     "
      "incident 3: rank 9 on node2 was killed by signal 9\\x1b\n");
  history.mutable_attempts(0)->set_first_step(115);
  EXPECT_NE(describe_history(history, kHistoryStart, 200).find("0 to 120  5     incident 3"),
            std::string::npos)
      << "the next attempt repeats five steps";
  v1::GetJobHistoryResponse again = history;
  again.clear_attempts();
  *again.add_attempts() = history.attempts(0);
  v1::JobAttempt& dead = *again.add_attempts();
  dead.set_first_step(-1);
  dead.set_last_step(-1);
  *again.add_attempts() = history.attempts(1);
  EXPECT_NE(describe_history(again, kHistoryStart, 200).find("0 to 120  5     incident 3"),
            std::string::npos)
      << "an attempt that died before its first step repeats none";
  history.set_more(true);
  const std::string cut = describe_history(history, kHistoryStart, 60);
  EXPECT_NE(cut.find("--limit"), std::string::npos);
  EXPECT_EQ(cut.find("killed"), std::string::npos) << "rows are at most 60 columns wide";
  EXPECT_EQ(describe_history({}, kHistoryStart, 60), "no attempt was started\n");
}

TEST(HistoryView, JsonHasEveryField) {
  const nlohmann::json out = daemon::history_to_json(two_attempts());
  ASSERT_EQ(out["attempts"].size(), 2U);
  const auto* fields = v1::JobAttempt::descriptor();
  for (int i = 0; i < fields->field_count(); ++i)
    EXPECT_TRUE(out["attempts"][1].contains(std::string(fields->field(i)->name())));
  EXPECT_EQ(out["attempts"][1]["last_step"], 120);
  EXPECT_EQ(out["attempts"][1]["steps_lost"], -1);
  EXPECT_EQ(out["more"], false);
}

}  // namespace
}  // namespace muster::cli
