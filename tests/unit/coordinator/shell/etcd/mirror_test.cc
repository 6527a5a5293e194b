// Random batches over all tables: the file that the next leader builds equals the former leader's.
#include <random>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/shell/etcd/etcd_server.h"
#include "tests/unit/coordinator/shell/full_incident.h"
#include "tests/unit/coordinator/shell/full_job.h"

namespace muster::coordinator {
namespace {

constexpr int kTerms = 6;
constexpr int kBatchesPerTerm = 25;

class Batches {
 public:
  explicit Batches(uint32_t seed) : random_(seed) {}

  StorageBatch next() {
    StorageBatch batch;
    for (uint64_t i = below(3); i > 0; --i) {
      Job job = full_job();
      job.id = JobId(1 + below(12));
      job.reason = std::string(below(3'000), static_cast<char>('a' + below(26)));
      // Some rows have several parts.
      if (below(6) == 0) job.reason = std::string(below(1'500'000), 'x');
      job.attempt = Attempt(static_cast<uint32_t>(1 + below(5)));
      job.exits.resize(below(job.exits.size() + 1));
      if (below(3) == 0) batch.request_ids[absl::StrCat("job/", job.id.value(), " #é")] = job.id;
      batch.last_job_id = JobId(20 + below(100));
      batch.jobs[job.id] = std::move(job);
    }
    for (uint64_t i = below(4); i > 0; --i) {
      const JobId job(1 + below(12));
      if (batch.jobs.count(job) > 0) continue;
      batch.exits.push_back(
          {job, Attempt(static_cast<uint32_t>(below(4))), below(20), full_job().exits[below(2)]});
    }
    for (uint64_t i = below(2); i > 0; --i) {
      Incident incident = full_incident(1 + below(9), JobId(1 + below(12)));
      batch.incidents[incident.id] = std::move(incident);
    }
    for (uint64_t i = below(3); i > 0; --i) {
      NodeRecord node;
      node.worker = WorkerName(absl::StrCat("node-", below(6), ".cluster"));
      node.reason = absl::StrCat("reason ", below(100));
      node.excluded = true;
      batch.nodes[node.worker] = node;
      batch.deep_checks[node.worker].resize(below(3));
    }
    for (uint64_t i = below(3); i > 0; --i) {
      AttemptRecord attempt;
      attempt.job = JobId(1 + below(12));
      attempt.attempt = Attempt(static_cast<uint32_t>(1 + below(200)));
      attempt.end = absl::StrCat("end ", below(100));
      batch.attempts.push_back(attempt);
    }
    if (below(4) == 0) batch.forgotten.push_back(JobId(1 + below(12)));
    if (below(4) == 0) batch.forgotten_incidents.push_back(IncidentId(1 + below(9)));
    if (below(4) == 0)
      batch.forgotten_nodes.push_back(WorkerName(absl::StrCat("node-", below(6), ".cluster")));
    return batch;
  }

 private:
  uint64_t below(uint64_t limit) { return random_() % limit; }

  std::mt19937 random_;
};

class MirrorTest : public EtcdTest {};

TEST_F(MirrorTest, TheNextLeaderHasTheSameRows) {
  Batches batches(34);
  std::vector<std::string> rows;
  for (int number = 0; number < kTerms; ++number) {
    Term term(options(), kLong);
    const std::string path = folder_.file(absl::StrCat(number, ".db"));
    term.open(path);
    ASSERT_NE(term.storage, nullptr);
    if (number > 0) {
      EXPECT_EQ(rows_of(path), rows) << "term " << number;
    }
    for (int batch = 0; batch < kBatchesPerTerm; ++batch) {
      const absl::Status status = term.storage->commit(batches.next());
      ASSERT_TRUE(status.ok()) << status;
    }
    ASSERT_TRUE(term.storage->begin_epoch().ok());
    rows = rows_of(path);
    EXPECT_GT(rows.size(), 30U);
  }
}

}  // namespace
}  // namespace muster::coordinator
