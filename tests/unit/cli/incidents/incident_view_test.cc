#include "cli/incidents/incident_view.h"

#include <gmock/gmock.h>

#include <string>

#include <absl/strings/str_split.h>
#include <gtest/gtest.h>

#include "cli/jobs/stack_view.h"
#include "cli/terminal/terminal.h"
#include "common/text/escape.h"
#include "daemon/json/incident_json.h"
#include "daemon/json/stack_json.h"
#include "tests/unit/cli/incidents/incident_messages.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kIncidentNow = 1'700'000'016'000'000'000;

StackView screen() { return {}; }

size_t widest(const std::string& text) {
  size_t width = 0;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n')))
    width = std::max(width, columns(line));
  return width;
}

TEST(IncidentView, ShowsTheVerdictOnOneScreen) {
  const auto text = describe_incident(stuck_incident(), kIncidentNow, screen());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, R"(incident 7: hang, job 3 (llama), attempt 2, 16s ago
rank 1 on node0 never entered all-gather 42 of fsdp (layer 3 mlp all-gather),
which 3 other ranks wait in; it is in Batches::read()
action: restart 1 of 3

suspects
  rank 1 on node0 (90%)
    never entered all-gather 42
    at data/batches.cc:12 in muster::trainer::Batches::read()
    in layer 3 mlp all-gather along fsdp
  node0 (10%)
    its disk\x1b[31m is slow

what happened, from 2023-11-14 22:13:20 UTC
     +0.000s  last progress: step 41
     +2.500s  suspected
     +2.710s  stacks read
     +3.720s  verdict: stuck

ranks
  rank 1, pid 101: DATA after step 41, still for 2.5s, sleeps, in pipe_read
  rank 0, pid 100: STEP after step 41, still for 2.5s, sleeps
  rank 3, pid 103: STEP after step 41, still for 2.5s, sleeps
  RANK  GROUP  SIZE  ENQUEUED  STARTED  DONE  AGE  LAST
  1     fsdp   4     41        41       41    -    all-gather
  0     fsdp   4     42        42       41    2s   layer 3 mlp all-gather
  3     fsdp   4     42        42       41    2s   layer 3 mlp all-gather

stacks of main threads
3 ranks: 0,2-3
  libc.so.6 in poll
  comm/transport_group.cc:88 in muster::trainer::Transport::all_gather(muster::…
  muster-trainer+0x20
  muster-trainer+0x10

rank 1 (suspect)
  train.py:31 train_step
  data/batches.cc:12 in muster::trainer::Batches::read()
  muster-trainer+0x10

… 1 stack of other threads
rank 3: no stack: held by a debugger (pid 17)

last lines of rank 1
  completed step: 40
  completed step: 41

kernel messages
  nvme0n1: I/O error
)");
  EXPECT_LE(widest(*text), 80U);
}

TEST(IncidentView, ControlCharactersAreEscaped) {
  v1::Incident incident = stuck_incident();
  incident.set_sentence("a\x1b[2J\nb");
  incident.set_job_name("\x1b]0;x\x07");
  incident.set_action("\x1b[1m");
  incident.set_diagnosis("\x1b[1m");
  incident.mutable_moments(0)->set_text("\x1b[5m");
  incident.add_kernel_messages("\x1b[6m");
  incident.mutable_ranks(0)->add_last_lines("\x1b[7m");
  incident.mutable_suspects(0)->set_source("\x1b[8m");
  incident.mutable_stacks()->mutable_frames(0)->set_text("\x1b[9m");
  const auto text = describe_incident(incident, kIncidentNow, screen());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(escape_controls(*text), *text);
  v1::ListIncidentsResponse list;
  *list.add_incidents() = incident;
  const std::string rows = describe_incident_list(list, kIncidentNow, 80);
  EXPECT_EQ(escape_controls(rows), rows);
}

TEST(IncidentView, AKnownErrorHasALineOfItsOwn) {
  v1::Incident incident = stuck_incident();
  incident.set_diagnosis("port in use: Another process listens. Verdict: restart in place");
  const auto text = describe_incident(incident, kIncidentNow, screen());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text,
              HasSubstr("\nknown error: port in use: Another process listens. Verdict: restart "
                        "in place\naction: restart 1 of 3\n"));
  EXPECT_EQ((*daemon::incident_to_json(incident))["diagnosis"], incident.diagnosis());
}

TEST(IncidentView, InvalidStackTreesAreAnError) {
  v1::Incident incident = stuck_incident();
  incident.mutable_stacks()->mutable_nodes(0)->set_frame(999);
  EXPECT_FALSE(describe_incident(incident, kIncidentNow, screen()).ok());
  EXPECT_FALSE(daemon::incident_to_json(incident).ok());
}

TEST(IncidentView, ListsOneLineEach) {
  v1::ListIncidentsResponse list;
  *list.add_incidents() = stuck_incident();
  v1::Incident slow;
  slow.set_id(6);
  slow.set_job_id(3);
  slow.set_kind("slow rank");
  slow.set_open(true);
  slow.set_sentence("rank 2 is slow");
  *list.add_incidents() = slow;
  EXPECT_EQ(describe_incident_list(list, kIncidentNow, 80),
            "INCIDENT  JOB  KIND              AGE  BACK AFTER  WHAT\n"
            "7         3    hang              16s  -           rank 1 on node0 never entered…\n"
            "6         3    slow rank (open)  -    -           rank 2 is slow\n");
}

TEST(IncidentView, JsonHasEverything) {
  const auto json = daemon::incident_to_json(stuck_incident());
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ((*json)["id"], 7);
  EXPECT_EQ((*json)["kind"], "hang");
  EXPECT_EQ((*json)["suspects"][0]["rank"], 1);
  EXPECT_EQ((*json)["suspects"][0]["confidence"], 0.9);
  EXPECT_EQ((*json)["moments"].size(), 4U);
  EXPECT_EQ((*json)["ranks"][0]["phase"], "DATA");
  EXPECT_EQ((*json)["ranks"][0]["process_state"], "S");
  EXPECT_EQ((*json)["ranks"][1]["groups"][0]["kind"], "all-gather");
  EXPECT_EQ((*json)["kernel_messages"][0], "nvme0n1: I/O error");
  const auto& largest = (*json)["stacks"]["classes"][0];
  EXPECT_EQ(largest["count"], 4) << largest;
  v1::Incident summary = stuck_incident();
  summary.clear_ranks();
  summary.clear_stacks();
  EXPECT_FALSE(daemon::incident_to_json(summary)->contains("ranks"));
}

TEST(StackView, ShowsMainThreadsFirstAndOthersOnDemand) {
  StackView view;
  EXPECT_EQ(describe_stacks(stuck_stacks(), view),
            R"(3 ranks: 0,2-3
  libc.so.6 in poll
  comm/transport_group.cc:88 in muster::trainer::Transport::all_gather(muster::…
  muster-trainer+0x20
  muster-trainer+0x10

rank 1
  train.py:31 train_step
  data/batches.cc:12 in muster::trainer::Batches::read()
  muster-trainer+0x10

… 1 stack of other threads
)");
  view.all_threads = true;
  EXPECT_THAT(describe_stacks(stuck_stacks(), view),
              HasSubstr("thread prefetch of 4 ranks: 0-3\n"
                        "  data/batches.cc:12 in muster::trainer::Batches::read()\n"));
  view.frames_max = 1;
  view.classes_max = 1;
  EXPECT_EQ(describe_stacks(stuck_stacks(), view),
            "3 ranks: 0,2-3\n"
            "  libc.so.6 in poll\n"
            "  … 3 frames further out\n"
            "\n"
            "… 2 more stacks of fewer ranks\n");
}

TEST(StackView, ShowsThePythonPartWhole) {
  StackSample sample;
  sample.modules.push_back({.build_id = "", .path = "/x/libtorch_cpu.so"});
  ThreadStack thread{.tid = 1, .name = "main", .state = 'S', .frames = {}};
  thread.frames.push_back({.text = "/home/u/job/train.py:88 <module>"});
  thread.frames.push_back(
      {.text = "/v/lib/python3.11/site-packages/torch/_tensor.py:581 backward"});
  for (uint64_t i = 1; i <= 3; ++i)
    thread.frames.push_back({.module = 0, .address = i, .text = ""});
  sample.ranks.push_back({.rank = 0, .pid = 1, .problem = "", .threads = {thread}, .note = ""});
  StackTree tree;
  tree.add(sample);
  StackView view;
  view.frames_max = 1;
  EXPECT_EQ(describe_stacks(tree, view),
            "rank 0\n"
            "  libtorch_cpu.so+0x3\n"
            "  … 2 frames\n"
            "  torch/_tensor.py:581 backward\n"
            "  job/train.py:88 <module>\n");
  const auto frames = daemon::stacks_to_json(tree)["classes"][0]["frames"];
  EXPECT_EQ(frames.dump().find("/home/u/job/train.py") == std::string::npos, false) << frames;
}

TEST(StackView, StatesWhyRanksHaveNoStacks) {
  std::vector<RankEvidence> ranks = stuck_ranks();
  ranks[1].stack_problem = ranks[2].stack_problem;
  EXPECT_EQ(describe_stack_problems(ranks, {}),
            "2 ranks: 0,3: no stack: held by a debugger (pid 17)\n");
  ranks[0].stack_note = "no Python frames: py-spy is not installed";
  EXPECT_THAT(describe_stack_problems(ranks, {}),
              HasSubstr("rank 1: no Python frames: py-spy is not installed\n"));
}

TEST(StackView, GroupsShowTheRankThatIsBehind) {
  EXPECT_EQ(describe_groups(stuck_ranks()),
            "RANK  GROUP  SIZE  ENQUEUED  STARTED  DONE  AGE  LAST\n"
            "1     fsdp   4     41        41       41    -    all-gather\n"
            "0     fsdp   4     42        42       41    2s   layer 3 mlp all-gather\n"
            "3     fsdp   4     42        42       41    2s   layer 3 mlp all-gather\n");
}

}  // namespace
}  // namespace muster::cli
