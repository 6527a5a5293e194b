// Periodic stack traces: their content and destinations, and that nothing blocks or grows without a
// consumer.
#include "worker/shell/evidence/stack_trace.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <gtest/gtest.h>

#include "common/files/file_write.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/worker/shell/evidence/stack_trace_fixture.h"
#include "worker/shell/evidence/trace_file.h"
#include "worker/shell/logs/otlp_logs.h"

namespace muster::worker {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr int64_t kNoon = 1'700'000'000'123'000'000;

StackTrace sample_trace() {
  StackTrace trace;
  trace.key = {JobId(7), Attempt(2), Rank(3)};
  trace.job_name = "llama";
  trace.worker = "node0";
  trace.pid = 4711;
  trace.unix_ns = kNoon;
  RankStacks rank;
  rank.rank = 3;
  rank.threads = {{2, "prefetch", 'S', {{kNoModule, 0, "[jit]"}}, false},
                  {1, "main", 'S', {{0, 0x10, ""}, {kNoModule, 0, "train.py:31 step"}}, false}};
  trace.stacks.add({{{"ab", "/bin/muster-trainer"}}, {rank}});
  for (uint32_t i = 0; i < trace.stacks.frames().size(); ++i) {
    if (trace.stacks.frames()[i].module == 0)
      trace.stacks.set_symbol(i, {"run()", "/src/trainer_core/loop/train.cc", 210});
  }
  return trace;
}

TEST(StackTrace, TextHasTheMainThreadFirstAndTheInnermostFrameFirst) {
  EXPECT_EQ(trace_text(sample_trace()),
            "muster: stacks of rank 3, pid 4711, at 2023-11-14T22:13:20.123Z\n"
            "thread main\n"
            "  train.py:31 step\n"
            "  loop/train.cc:210 in run()\n"
            "thread prefetch\n"
            "  [jit]\n");
  StackTrace dead = sample_trace();
  dead.problem = "held by a debugger (pid 9)";
  EXPECT_THAT(trace_text(dead), HasSubstr("\nno stack: held by a debugger (pid 9)\n"));
}

TEST(StackTrace, TextIsBounded) {
  StackTrace trace = sample_trace();
  RankStacks rank;
  rank.rank = 3;
  for (int t = 0; t < 500; ++t) {
    ThreadStack& thread = rank.threads.emplace_back();
    thread.name = absl::StrCat("t", t);
    for (int f = 0; f < 10; ++f)
      thread.frames.push_back({kNoModule, 0, absl::StrCat(f, std::string(100, 'x'))});
  }
  trace.stacks.add({{}, {rank}});
  const std::string text = trace_text(trace);
  EXPECT_LT(text.size(), kTraceTextBytesMax + 64);
  EXPECT_THAT(text, HasSubstr(" more threads\n"));
}

TEST(StackTrace, ARecordMatchesLogQueries) {
  const json record = trace_record(sample_trace());
  EXPECT_EQ(record["verb"], "stacktraceanalyzer");
  EXPECT_EQ(record["job"], 7);
  EXPECT_EQ(record["rank"], 3);
  EXPECT_EQ(record["time"], "2023-11-14T22:13:20.123Z");
  EXPECT_EQ(record["message"], trace_text(sample_trace()));
}

TEST(TraceFile, RollsOverWhenItIsFull) {
  TempFolder folder;
  const std::string path = folder.path() + "/t.jsonl";
  TraceFile file(path, 100, 0600);
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(file.append(std::string(39, static_cast<char>('a' + i))).ok());
  EXPECT_THAT(lines_of(path), ElementsAre(std::string(39, 'e')));
  EXPECT_THAT(lines_of(path + ".1"), ElementsAre(std::string(39, 'c'), std::string(39, 'd')));
  std::filesystem::remove(path);  // as an agent does after reading it
  ASSERT_TRUE(file.append("again").ok());
  EXPECT_THAT(lines_of(path), ElementsAre("again"));
}

TEST(TraceFile, FollowsNoLinks) {
  TempFolder folder;
  const std::string path = folder.path() + "/t.jsonl";
  std::filesystem::create_symlink(folder.path() + "/victim", path);
  TraceFile file(path, 100, 0600);
  EXPECT_FALSE(file.append("x").ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/victim"));
}

TEST(OtlpTarget, ReadsEndpointsAndHeaders) {
  const auto target = otlp_target("http://collector:4320/otel/", "api-key=a%2Cb, x=y");
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_EQ(target->host, "collector");
  EXPECT_EQ(target->port, "4320");
  EXPECT_EQ(target->path, "/otel/v1/logs");
  EXPECT_EQ(target->headers, (std::map<std::string, std::string>{{"api-key", "a,b"}, {"x", "y"}}));
  EXPECT_EQ(otlp_target("http://[::1]", "")->host, "::1");
  EXPECT_EQ(otlp_target("http://[::1]", "")->port, "4318");
  EXPECT_EQ(otlp_target("http://h", "")->path, "/v1/logs");
}

TEST(OtlpTarget, RefusesInvalidEndpoints) {
  for (const char* endpoint :
       {"", "h:4318", "ftp://h", "https://h", "http://", "http://:1", "http://h:0", "http://h:x",
        "http://h:70000", "http://h\r\nx", "http://user@h"}) {
    EXPECT_EQ(otlp_target(endpoint, "").status().code(), absl::StatusCode::kInvalidArgument)
        << endpoint;
  }
  for (const char* headers : {"x", "=y", "x=a%0d%0ab", "x y=z"}) {
    EXPECT_EQ(otlp_target("http://h", headers).status().code(), absl::StatusCode::kInvalidArgument)
        << headers;
  }
}

constexpr OtlpOptions kQuick = {.tries_max = 3,
                                .first_pause = std::chrono::milliseconds(1),
                                .try_budget = std::chrono::seconds(10),
                                .queue_bytes_max = 1 << 20};

TEST(OtlpLogs, RetriesWhenTheCollectorIsBusy) {
  Collector collector({503, 429, 200});
  OtlpLogs logs(*otlp_target(collector.endpoint(), ""), "node0", kQuick);
  logs.send({trace_record(sample_trace())});
  ASSERT_TRUE(eventually([&] { return collector.bodies().size() == 3; }));
  const std::vector<json> bodies = collector.bodies();
  const json& resource = bodies[2]["resourceLogs"][0];
  const json& record = resource["scopeLogs"][0]["logRecords"][0];
  EXPECT_EQ(record["timeUnixNano"], absl::StrCat(kNoon));
  EXPECT_EQ(record["severityNumber"], 9);
  EXPECT_EQ(record["body"]["stringValue"], trace_text(sample_trace()));
  const json rank = {{"key", "muster.rank"}, {"value", {{"intValue", "3"}}}};
  EXPECT_THAT(record["attributes"], testing::Contains(rank));
  const json instance = {{"key", "service.instance.id"}, {"value", {{"stringValue", "node0"}}}};
  EXPECT_THAT(resource["resource"]["attributes"], testing::Contains(instance));
  EXPECT_EQ(logs.dropped(), 0U);
}

TEST(OtlpLogs, CountsDroppedRecords) {
  Collector collector({400});
  OtlpLogs refused(*otlp_target(collector.endpoint(), ""), "node0", kQuick);
  refused.send({trace_record(sample_trace()), trace_record(sample_trace())});
  EXPECT_TRUE(eventually([&] { return refused.dropped() == 2; }));
  EXPECT_THAT(collector.bodies(), SizeIs(1)) << "a refused request is not repeated";

  OtlpLogs absent(*otlp_target("http://127.0.0.1:1", ""), "node0", kQuick);
  absent.send({trace_record(sample_trace())});
  EXPECT_TRUE(eventually([&] { return absent.dropped() == 1; }));
}

TEST(OtlpLogs, AFullQueueDropsAtOnce) {
  OtlpOptions slow = kQuick;
  slow.first_pause = std::chrono::hours(1);
  slow.queue_bytes_max = 20'000;
  OtlpLogs logs(*otlp_target("http://127.0.0.1:1", ""), "node0", slow);
  for (int i = 0; i < 1'000; ++i) logs.send({trace_record(sample_trace())});
  EXPECT_GT(logs.dropped(), 900U);
  // The destructor does not wait for the pause.
}

}  // namespace
}  // namespace muster::worker
