// Scores the verdict from logs on ends of jobs whose messages are those of public reports, and
// measures it for 16,384 ranks. The files in log_cases/ have one case per paragraph:
//
//   case TITLE                     what has happened
//   origin WHERE                   the public source of the messages
//   nodes N ranks R                R ranks on each of N nodes n0, n1, …; one more node is free
//   exit RANK code C | signal S step T     a rank ends; the order is that of the reports
//   | LINE                         the last lines of its output
//   exit RANK like OTHER           with the same end and lines as another rank
//   kernel NODE LINE               a message of the kernel of that node
//   truth rank R family "F" verdict stop | in-place | elsewhere     family none: none is known
//
// A rank that does not end by itself is stopped. Process ids are 4000 + rank.
#include "coordinator/core/recovery/log_verdict.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <gtest/gtest.h>

#include "common/text/end_reason.h"
#include "coordinator/core/core.h"
#include "coordinator/core/recovery/rank_faults.h"
#include "coordinator/core/recovery/restart_policy.h"
#include "tests/paths.h"

namespace muster::coordinator {
namespace {

struct CaseExit {
  int32_t rank = 0;
  int32_t code = -1;
  int32_t signal = 0;
  int64_t step = -1;
  std::vector<std::string> lines;
};

struct LogCase {
  std::string title;
  int32_t nodes = 1;
  int32_t ranks = 1;  // per node
  std::vector<CaseExit> exits;
  std::map<int32_t, std::vector<std::string>> kernel;
  std::string truth;
};

int32_t number(absl::string_view text) {
  int32_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) ADD_FAILURE() << "no number: " << text;
  return value;
}

CaseExit exit_of(const std::vector<std::string>& words, const LogCase& one) {
  if (words.at(2) == "like") {
    CaseExit same = *std::ranges::find(one.exits, number(words.at(3)), &CaseExit::rank);
    same.rank = number(words[1]);
    return same;
  }
  CaseExit exit{.rank = number(words.at(1)), .step = number(words.at(5)), .lines = {}};
  (words[2] == "signal" ? exit.signal : exit.code) = number(words[3]);
  return exit;
}

std::vector<LogCase> cases_of(const std::string& file) {
  std::ifstream in(source_dir() + "/tests/unit/coordinator/core/recovery/log_cases/" + file);
  EXPECT_TRUE(in) << file;
  std::vector<LogCase> cases;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("case ")) cases.emplace_back().title = line.substr(5);
    if (cases.empty() || line.empty()) continue;
    LogCase& one = cases.back();
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[0] == "nodes") {
      one.nodes = number(words.at(1));
      one.ranks = number(words.at(3));
    } else if (words[0] == "exit") {
      one.exits.push_back(exit_of(words, one));
    } else if (words[0] == "|") {
      one.exits.back().lines.push_back(line.size() > 2 ? line.substr(2) : "");
    } else if (words[0] == "kernel") {
      one.kernel[number(words.at(1))].push_back(line.substr(9));
    } else if (words[0] == "truth") {
      one.truth = line.substr(6);
    }
  }
  return cases;
}

// A fleet with one job of a program, and a free node.
class World {
 public:
  World(int32_t nodes, int32_t ranks) : nodes_(nodes), ranks_(ranks) {
    for (int32_t node = 0; node <= nodes; ++node) {
      WorkerRegistered event;
      event.worker = name(node);
      event.incarnation = Incarnation(1);
      event.version = "1";
      event.host = absl::StrCat("h", node);
      event.slots = ranks;
      event.rendezvous_address = absl::StrCat("h", node, ":1");
      event.program_ports = {12'000, 8};
      event.unix_ns = 1;
      take(event);
    }
    JobSubmitted submitted;
    submitted.token = RequestToken(1);
    submitted.spec.name = "j";
    submitted.spec.nodes = nodes;
    submitted.spec.ranks_per_node = ranks;
    submitted.spec.restarts_max = 3;
    submitted.spec.output_directory = "/o";
    submitted.spec.command = {"python3", "train.py"};
    submitted.spec.working_directory = "/o";
    submitted.unix_ns = 1;
    step(submitted);
    for (int32_t node = 0; node < nodes; ++node) {
      HeartbeatReceived event{name(node), Incarnation(1), {}, 1};
      for (int32_t local = 0; local < ranks; ++local) {
        RankProgress& progress = event.ranks.emplace_back();
        progress.job = JobId(1);
        progress.attempt = Attempt(1);
        progress.rank = Rank(node * ranks + local);
        progress.pid = 1;
        progress.phase = Phase::kStep;
      }
      take(event);
    }
    core_.place_jobs(actions_);
  }

  static WorkerName name(int32_t node) { return WorkerName(absl::StrCat("n", node)); }
  const Job& job() const { return core_.jobs().at(JobId(1)); }

  // Reports the end of a rank, with the reason that the worker finds.
  void end(const CaseExit& exit, const std::vector<std::string>& kernel) {
    RankExited event = event_of(exit.rank);
    event.exit_code = exit.code;
    event.signal = exit.signal;
    event.last_step = exit.step;
    event.detail = reason_in_lines(exit.lines, exit.signal);
    if (const std::string reason = kernel_reason(event.detail, kernel, 4000 + exit.rank);
        !reason.empty())
      absl::StrAppend(&event.detail, event.detail.empty() ? "" : "; ",
                      "the kernel reported: ", reason);
    step(event);
  }
  // Stops the ranks that have not ended. Before that, the coordinator waits for the culprit.
  void stop_the_rest(const std::set<int32_t>& ended) {
    wait_while([&] { return is_running(job().state); });
    for (int32_t rank = 0; rank < nodes_ * ranks_; ++rank) {
      if (ended.contains(rank)) continue;
      RankExited event = event_of(rank);
      event.exit_code = -1;
      event.signal = 15;
      event.stop_ordered = true;
      step(event);
    }
  }
  void wait_for_the_restart() {
    wait_while([&] { return job().state == JobState::kQueued; });
  }

  void step(const Event& event) {
    take(event);
    core_.place_jobs(actions_);
    actions_.clear();
  }

 private:
  template <class Condition>
  void wait_while(Condition condition) {
    for (int i = 0; i < 80 && condition(); ++i) {
      now_ += std::chrono::milliseconds(500);
      for (int32_t node = 0; node <= nodes_; ++node)
        take(HeartbeatReceived{name(node), Incarnation(1), {}, 1});
      step(Tick{1});
    }
  }
  void take(const Event& event) { core_.take(event, now_, actions_); }
  RankExited event_of(int32_t rank) {
    RankExited event;
    event.worker = name(rank / ranks_);
    event.incarnation = Incarnation(1);
    event.report_id = ++reports_;
    event.job = JobId(1);
    event.attempt = Attempt(1);
    event.rank = Rank(rank);
    event.unix_ns = 1;
    return event;
  }
  static CoreOptions options() {
    CoreOptions o;
    o.version = "1";
    return o;
  }

  const int32_t nodes_;
  const int32_t ranks_;
  Instant now_ = Instant(std::chrono::hours(1));
  Core core_{options(), {}, now_};
  ActionList actions_;
  uint64_t reports_ = 0;
};

// Returns the outcome in the words of a case's truth.
std::string outcome_of_case(const LogCase& one) {
  World world(one.nodes, one.ranks);
  std::set<int32_t> ended;
  for (const CaseExit& exit : one.exits) {
    const auto kernel = one.kernel.find(exit.rank / one.ranks);
    world.end(exit, kernel == one.kernel.end() ? std::vector<std::string>() : kernel->second);
    ended.insert(exit.rank);
  }
  world.stop_the_rest(ended);
  world.wait_for_the_restart();
  const Job& job = world.job();
  if (job.faults.empty()) return absl::StrCat("no fault: ", job.reason);
  const Fault& fault = job.faults.back();
  std::string verdict = "stop";
  if (job.state != JobState::kFailed) {
    const bool is_there = std::ranges::any_of(
        job.placement, [&](const RankPlacement& rank) { return rank.worker == fault.worker; });
    verdict = job.placement.empty() ? "none" : is_there ? "in-place" : "elsewhere";
  }
  return absl::StrCat("rank ", fault.rank.value(), " family ",
                      fault.family.empty() ? "none" : absl::StrCat("\"", fault.family, "\""),
                      " verdict ", verdict);
}

// Returns the number of right outcomes, and reports the others.
size_t score(const std::vector<LogCase>& cases) {
  size_t right = 0;
  for (const LogCase& one : cases) {
    const std::string outcome = outcome_of_case(one);
    if (outcome == one.truth)
      ++right;
    else
      std::cout << one.title << "\n  expected " << one.truth << "\n  found    " << outcome << "\n";
  }
  return right;
}

TEST(LogVerdict, RankFamilyAndVerdictAreRightInKnownEnds) {
  for (const char* file : {"fitted.txt", "held_out.txt"}) {
    const std::vector<LogCase> cases = cases_of(file);
    const size_t right = score(cases);
    std::cout << file << ": " << right << " of " << cases.size() << "\n";
    EXPECT_GE(cases.size(), 25U) << file;
    EXPECT_GE(right * 100, cases.size() * 95) << file;
  }
}

RankExit exit_of_program(int32_t rank, std::string detail) {
  return {Rank(rank), 1, 0, 9, std::move(detail), ExitCause::kUnknown, true};
}

// Ordinary output as the last line of a rank that exits by a code is no evidence about its node or
// its program.
TEST(LogVerdict, OrdinaryLinesAreNoKnownErrors) {
  for (const std::string& line : std::vector<std::string>{
           "wandb: WARNING 403 Client Error: Forbidden for url: https://api.wandb.ai/files",
           "wandb: Synced 5 W&B file(s), 0 media file(s), 2 artifact file(s)",
           "Saved 1503 samples to /out/eval.json",
           "Wrote 4503 slow samples",
           "epoch 3 | loss 1.23 | 1503 server error rate 0.0 | 12.1 it/s",
           "INFO 10:00:00 cache: No such file or directory, it is built now",
           "WARNING:root:PermissionError ignored for telemetry",
           "[W1129 09:00:00.1 ProcessGroup.cpp:1] Warning: destroy_process_group() was not called",
           "/job/train.py:3: UserWarning: No module named 'apex', using the slow path",
           "DEBUG: retry after HTTP 503 Service Unavailable",
           "val_error 0.12",
           "0 failed, 12 passed",
           "step 48 loss 5.5 nan_count 0",
           "Loading checkpoint shards: 100% 403/403 [00:01<00:00]",
           "keyerror rate 0.001",
           "MonkeyError of the benchmark: 0.3",
           "metrics: {'value_error': 0.1, 'index_error': 0.2}",
           "INFO: the gpu is lost to preemption in 3% of runs",
           "checksum mismatch rate 0.0 %",
           "saving to /data/ecc_uncorrectable/run7",
           "no cuda gpus are available is handled, the CPU is used",
           "read-only file system /mnt/ref is mounted",
           "number of nonfinite gradients: 0",
           "assertion tests failed: 0",
           "could not find libcudnn, using the native kernels",
           "done in 403 s"}) {
    const std::string detail = reason_in_lines(std::vector<std::string>{line}, 0);
    EXPECT_EQ(detail, line);
    const ErrorFamily* family = family_of(exit_of_program(0, detail));
    EXPECT_EQ(family, nullptr) << line << ": " << (family == nullptr ? "" : family->name);
  }
}

// A shell's code for a missing program has a rule of its own, although its message is a known one.
TEST(LogVerdict, AMissingProgramHasNoFamily) {
  for (const int32_t code : {126, 127}) {
    RankExit exit = exit_of_program(0, "could not be started: /x: No such file or directory");
    exit.exit_code = code;
    const Fault fault = fault_of(exit, WorkerName("n0"), 1);
    EXPECT_EQ(fault.family, "");
    EXPECT_EQ(fault.error, "");
    EXPECT_EQ(cause_of(fault), Cause::kNotExecutable);
  }
}

// Four ranks on two nodes, of which three raise the same exception.
TEST(LogVerdict, ACauseOfItsOwnContradictsACommonError) {
  Job job;
  job.spec.ranks_per_node = 2;
  job.spec.command = {"python3", "train.py"};
  for (int32_t rank = 0; rank < 4; ++rank) {
    job.placement.push_back({Rank(rank), World::name(rank / 2), rank % 2, Incarnation(1)});
    job.exits.push_back(exit_of_program(rank, "KeyError: 'lr' (job/t.py:3 f)"));
  }
  job.faults = {fault_of(job.exits[0], World::name(0), 1)};
  EXPECT_EQ(ranks_with_same_error(job), 4);
  RankExit& last = job.exits[3];
  last.detail = "RuntimeError: [pair.cc:534] Connection closed by peer (job/t.py:3 f)";
  EXPECT_EQ(ranks_with_same_error(job), 3) << "a witness";
  last.cause = ExitCause::kGpuFault;
  EXPECT_EQ(ranks_with_same_error(job), 0) << "its GPU";
  last.cause = ExitCause::kUnknown;
  last.detail = "bye";
  EXPECT_EQ(ranks_with_same_error(job), 0) << "it is no witness";
  last = {Rank(3), -1, 11, 9, "", ExitCause::kUnknown, true};
  EXPECT_EQ(ranks_with_same_error(job), 0) << "a fatal signal";
  last = {Rank(3), -1, 15, 9, "stopped: rank 0 has failed", ExitCause::kUnknown, true, true};
  EXPECT_EQ(ranks_with_same_error(job), 3) << "it was ordered to stop";
  job.exits[1].detail = "KeyError: 'lr' (job/t.py:3 f); the kernel reported: x (y)";
  EXPECT_EQ(ranks_with_same_error(job), 3) << "the place is before the note";
}

constexpr int32_t kNodes = 2'048, kRanks = 8;
const std::vector<std::string> kClosed = {
    "RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.2]:21033"};

CaseExit exit_with(int32_t rank, std::vector<std::string> lines) {
  return {.rank = rank, .code = 1, .step = 9, .lines = std::move(lines)};
}

// One of 16,384 ranks has a cause of its own, and is the last one to report.
TEST(LogVerdict, OneCauseAmongWitnessesOfALargeJobMovesItsNode) {
  constexpr int32_t kCulprit = 11'111;
  World world(kNodes, kRanks);
  for (int32_t rank = 0; rank < kNodes * kRanks; ++rank)
    if (rank != kCulprit) world.end(exit_with(rank, kClosed), {});
  ASSERT_EQ(world.job().state, JobState::kRunning) << "the culprit's report is awaited";
  world.end(exit_with(kCulprit,
                      {"Traceback (most recent call last):", "  File \"/job/t.py\", line 3, in f",
                       "RuntimeError: CUDA error: uncorrectable ECC error encountered"}),
            {});
  world.wait_for_the_restart();
  const Job& job = world.job();
  ASSERT_EQ(job.faults.size(), 1U);
  EXPECT_EQ(job.faults[0].rank, Rank(kCulprit));
  EXPECT_EQ(job.faults[0].family, "GPU memory error");
  ASSERT_EQ(job.state, JobState::kStarting);
  EXPECT_TRUE(std::ranges::none_of(job.placement, [&](const RankPlacement& rank) {
    return rank.worker == World::name(kCulprit / kRanks);
  }));
}

// All ranks raise the same exception: the job ends with its first attempt. If another rank has a
// cause of its own, it does not.
TEST(LogVerdict, TheSameErrorOfALargeJobEndsIt) {
  const std::vector<std::string> lines = {
      "Traceback (most recent call last):", "  File \"/job/t.py\", line 3, in f", "KeyError: 'lr'"};
  for (const bool is_alone : {true, false}) {
    World world(kNodes, kRanks);
    for (int32_t rank = 0; rank < kNodes * kRanks; ++rank)
      world.end(exit_with(rank, rank == 77 && !is_alone
                                    ? std::vector<std::string>{"OSError: No space left on device"}
                                    : lines),
                {});
    const Job& job = world.job();
    EXPECT_EQ(job.state == JobState::kFailed, is_alone) << job.reason;
    if (!is_alone) continue;
    EXPECT_EQ(job.reason,
              "the same error on 16384 of 16384 ranks at job/t.py:3 f, which a restart cannot "
              "change; rank 0 on n0 exited with code 1 after 9 steps: KeyError: 'lr' (job/t.py:3 "
              "f)");
  }
}

}  // namespace
}  // namespace muster::coordinator
