// The storage on a disk that fails: each operation of a scripted run fails once, in every way.
// After a restart, the storage opens, has every confirmed commit, and has no part of a commit.
//
// MUSTER_DISK_FAULT_SEEDS=N runs each fault with N seeds of the random part instead of 1.
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include "coordinator/shell/storage/sqlite_database.h"
#include "coordinator/shell/storage/sqlite_storage.h"
#include "tests/unit/coordinator/shell/full_incident.h"
#include "tests/unit/coordinator/shell/full_job.h"
#include "tests/unit/coordinator/shell/storage/fault_disk.h"

namespace muster::coordinator {
namespace {

constexpr char kPath[] = "/state/muster.db";
// PatientStorage repeats a commit for as long as the disk is full.
constexpr int kTriesOnFullDisk = 3;
constexpr size_t kLargeBytes = 60'000;

struct FaultKind {
  const char* name;
  DiskFault fault;
  bool lasting;
};

constexpr FaultKind kKinds[] = {
    {"one I/O error", DiskFault::kIoError, false},
    {"lasting I/O errors", DiskFault::kIoError, true},
    {"a full disk once", DiskFault::kFull, false},
    {"a disk that stays full", DiskFault::kFull, true},
    {"one short write", DiskFault::kShortWrite, false},
    {"short writes", DiskFault::kShortWrite, true},
    {"a lock once", DiskFault::kBusy, false},
    {"a lock that stays", DiskFault::kBusy, true},
    {"a power cut", DiskFault::kPowerCut, true},
};

Job queued_job(uint64_t id) {
  Job job;
  job.id = JobId(id);
  job.spec.name = "job";
  job.spec.nodes = job.spec.ranks_per_node = 1;
  job.spec.output_directory = "/out/" + std::to_string(id);
  job.spec.environment = {{"TOKEN", "secret"}};
  job.reason = "submitted";
  return job;
}

StorageBatch submission(const Job& job) {
  StorageBatch batch;
  batch.jobs.emplace(job.id, job);
  batch.request_ids.emplace("request-" + std::to_string(job.id.value()), job.id);
  batch.last_job_id = job.id;
  return batch;
}

Job ended(Job job) {
  job.state = JobState::kCancelled;
  job.spec.environment = {{"TOKEN", ""}};  // has the storage overwrite the secret in its log
  job.finished_unix_ns = 5;
  return job;
}

// The commits of one run: submissions, starts, exits, ends, incidents, nodes and deletions.
std::vector<StorageBatch> script() {
  std::vector<StorageBatch> commits;
  commits.push_back(submission(queued_job(1)));
  Job large = queued_job(2);
  large.spec.train_config_json = "{\"x\": \"" + std::string(kLargeBytes, 'x') + "\"}";
  commits.push_back(submission(large));
  commits.push_back(submission(queued_job(3)));
  StorageBatch start;
  start.jobs.emplace(JobId(7), full_job());
  start.last_job_id = JobId(7);
  commits.push_back(start);
  StorageBatch exit;
  exit.exits.push_back({JobId(7),
                        full_job().attempt,
                        full_job().exits.size(),
                        {Rank(0), 0, 0, 20, "", ExitCause::kUnknown, false}});
  commits.push_back(exit);
  StorageBatch end;
  end.jobs.emplace(JobId(3), ended(queued_job(3)));
  end.incidents.emplace(IncidentId(1), full_incident(1));
  NodeRecord& node = end.nodes[WorkerName("n1")];
  node.worker = WorkerName("n1");
  node.excluded = true;
  commits.push_back(end);
  commits.push_back(submission(queued_job(8)));
  StorageBatch deletion;
  deletion.forgotten = {JobId(3)};
  deletion.forgotten_incidents = {IncidentId(1)};
  deletion.forgotten_nodes = {WorkerName("n1")};
  deletion.jobs.emplace(JobId(2), ended(large));
  commits.push_back(deletion);
  commits.push_back(submission(queued_job(9)));
  return commits;
}

std::string text_of(const DurableState& state) {
  std::string text = "jobs";
  for (const Job& job : state.jobs)
    text += " " + std::to_string(job.id.value()) + (is_terminal(job.state) ? " ended" : "") + ":" +
            std::to_string(job.exits.size()) + " exits,";
  return text + " last " + std::to_string(state.last_job_id.value());
}

bool are_equal(const DurableState& a, const DurableState& b) {
  return a.jobs == b.jobs && a.request_ids == b.request_ids && a.last_job_id == b.last_job_id &&
         a.incidents == b.incidents && a.nodes == b.nodes;
}

// The observations of one run of a process.
struct Observed {
  std::optional<StoreId> store;  // loaded
  Epoch epoch{0};                // begun
  size_t confirmed = 0;          // number of commits that returned OK
  size_t tried = 0;
  absl::Status error;  // the error that ended the run
};

Observed run_script(FaultDisk& disk, const std::vector<StorageBatch>& commits) {
  Observed run;
  auto storage = open_sqlite_storage(kPath);
  run.error = storage.status();
  if (!storage.ok()) return run;
  const auto epoch = (*storage)->begin_epoch();
  if (epoch.ok()) run.epoch = *epoch;
  const auto state = (*storage)->load();
  run.error = epoch.ok() ? state.status() : epoch.status();
  if (run.error.ok()) run.store = state->store;
  for (const StorageBatch& commit : commits) {
    if (!run.error.ok()) break;
    ++run.tried;
    int tries = 0;
    do {
      run.error = (*storage)->commit(commit);
    } while (absl::IsResourceExhausted(run.error) && ++tries < kTriesOnFullDisk);
    run.confirmed += run.error.ok() ? 1 : 0;
  }
  disk.kill_process();  // nothing is closed in an orderly way
  return run;
}

// The states after 0, 1, … commits, on a disk without faults.
std::vector<DurableState> expected_states(const std::vector<StorageBatch>& commits) {
  FaultDisk disk(1);
  std::vector<DurableState> states;
  auto storage = open_sqlite_storage(kPath);
  EXPECT_TRUE(storage.ok()) << storage.status();
  states.push_back(*(*storage)->load());
  for (const StorageBatch& commit : commits) {
    EXPECT_TRUE((*storage)->commit(commit).ok());
    const auto state = (*storage)->load();
    EXPECT_TRUE(state.ok()) << state.status();
    states.push_back(*state);
  }
  return states;
}

std::string integrity() {
  auto database = SqliteDatabase::open(kPath);
  if (!database.ok()) return std::string(database.status().message());
  const auto result = database->one_text("PRAGMA integrity_check");
  return result.ok() ? *result : std::string(result.status().message());
}

// Returns "" if the storage opens and has what `run` has confirmed.
std::string check(FaultDisk& disk, const Observed& run, const std::vector<DurableState>& expected) {
  std::string problem;
  {
    auto storage = open_sqlite_storage(kPath);
    if (!storage.ok()) return "it does not open: " + std::string(storage.status().message());
    const auto state = (*storage)->load();
    if (!state.ok()) return "it does not load: " + std::string(state.status().message());
    if (run.store && state->store != *run.store) return "it is another store";
    bool is_found = false;
    for (size_t i = run.confirmed; i <= run.tried; ++i)
      is_found = is_found || are_equal(*state, expected[i]);
    if (!is_found)
      problem = "after " + std::to_string(run.confirmed) + " confirmed commits it has " +
                text_of(*state) + "; expected " + text_of(expected[run.confirmed]);
    const auto epoch = (*storage)->begin_epoch();
    if (!epoch.ok()) return "no epoch begins: " + std::string(epoch.status().message());
    if (*epoch <= run.epoch) return "an epoch is repeated";
    disk.kill_process();
  }
  disk.restart();
  if (const std::string result = integrity(); result != "ok") return "integrity: " + result;
  return problem;
}

class StorageFaults : public testing::TestWithParam<FaultKind> {
 protected:
  void SetUp() override { spdlog::set_level(spdlog::level::off); }
  void TearDown() override { spdlog::set_level(spdlog::level::info); }

  // Runs the script with the fault at operation `k`, a restart, and a second one that a power cut
  // interrupts. Returns whether the fault occurred.
  bool run_with_fault(int64_t k, uint64_t seed, std::string& problem) {
    const FaultKind kind = GetParam();
    FaultDisk disk(seed);
    disk.fail_at(k, kind.fault, kind.lasting);
    const Observed run = run_script(disk, commits_);
    const bool has_failed = disk.faults() > 0;
    // After a kill the kernel still has all writes; after a power cut it does not.
    if (seed % 2 == 0 && !disk.is_cut()) disk.cut_power();
    disk.restart();
    // The power fails again while the storage is restored.
    disk.fail_at(static_cast<int64_t>(seed % 23), DiskFault::kPowerCut, true);
    { const auto interrupted = open_sqlite_storage(kPath); }
    disk.restart();
    problem = check(disk, run, expected_);
    confirmed_ += run.confirmed;
    return has_failed;
  }

  const std::vector<StorageBatch> commits_ = script();
  const std::vector<DurableState> expected_ = expected_states(commits_);
  size_t confirmed_ = 0;
};

TEST_P(StorageFaults, LoseNothingThatWasConfirmed) {
  const char* text = std::getenv("MUSTER_DISK_FAULT_SEEDS");
  const uint64_t seeds = text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
  int64_t runs = 0;
  for (int64_t k = 0, quiet = 0; quiet < 3; ++k) {
    bool has_failed = false;
    for (uint64_t seed = 0; seed < seeds; ++seed) {
      std::string problem;
      has_failed = run_with_fault(k, seed * 7919 + static_cast<uint64_t>(k), problem) || has_failed;
      ++runs;
      ASSERT_EQ(problem, "") << GetParam().name << " at operation " << k << ", seed " << seed;
    }
    // The script may have no operation k with this fault, but has later ones.
    quiet = has_failed || k < 300 ? 0 : quiet + 1;
  }
  std::cout << GetParam().name << ": " << runs << " runs, " << confirmed_ << " commits confirmed\n";
  EXPECT_GT(runs, 300);
  EXPECT_GT(confirmed_, static_cast<size_t>(runs));
}

INSTANTIATE_TEST_SUITE_P(Kinds, StorageFaults, testing::ValuesIn(kKinds), [](const auto& info) {
  std::string name = info.param.name;
  for (char& c : name)
    if (isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
});

// The test finds the loss of commits on a disk that ignores syncs.
TEST(StorageFaultsTest, FindLossesOfADiskThatLies) {
  const std::vector<StorageBatch> commits = script();
  const std::vector<DurableState> expected = expected_states(commits);
  int found = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    FaultDisk disk(seed);
    disk.ignore_syncs();
    const Observed run = run_script(disk, commits);
    ASSERT_EQ(run.confirmed, commits.size()) << run.error;
    disk.cut_power();
    disk.restart();
    found += check(disk, run, expected).empty() ? 0 : 1;
  }
  EXPECT_GT(found, 15);
}

}  // namespace
}  // namespace muster::coordinator
