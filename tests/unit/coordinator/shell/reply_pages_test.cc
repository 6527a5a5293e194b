// GetJob and ListWorkers have pages, so that the sizes of replies do not grow with the ranks of a
// job or with the fleet.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/job/limits.h"
#include "coordinator/shell/messages/job_and_worker_messages.h"
#include "tests/unit/coordinator/shell/shell_fixture.h"

namespace muster::coordinator {
namespace {

constexpr int kNodes = 5;
constexpr int kRanks = kNodes * kRanksPerNodeMax;
static_assert(kRanks > static_cast<int>(kRanksPageMax));

TEST_F(ShellTest, AJobHasPagesOfRanks) {
  std::vector<std::unique_ptr<FakeWorker>> workers;
  for (int i = 0; i < kNodes; ++i) {
    workers.push_back(std::make_unique<FakeWorker>(*fleet_));
    workers.back()->send(
        registration(absl::StrCat("node", i), static_cast<uint64_t>(i) + 1, kRanksPerNodeMax));
    ASSERT_TRUE(workers.back()->next().has_registered());
  }
  v1::SubmitJobRequest request = submission("a", kRanksPerNodeMax);
  request.mutable_spec()->set_nodes(kNodes);
  v1::Job job;
  ASSERT_TRUE(submit(request, &job).ok());

  const auto page = [&](int32_t first_rank) {
    grpc::ClientContext context;
    set_deadline(context);
    v1::GetJobRequest get;
    get.set_job_id(job.id());
    get.set_first_rank(first_rank);
    v1::Job reply;
    EXPECT_TRUE(muster_->GetJob(&context, get, &reply).ok());
    EXPECT_EQ(reply.rank_count(), kRanks);
    EXPECT_EQ(reply.ranks_size(), reply.placement_size());
    return reply;
  };
  const v1::Job first = page(0);
  ASSERT_EQ(first.ranks_size(), static_cast<int>(kRanksPageMax));
  EXPECT_EQ(first.ranks(0).rank(), 0);
  EXPECT_LT(first.ByteSizeLong(), size_t{1} << 20);
  const v1::Job second = page(first.ranks_size());
  ASSERT_EQ(second.ranks_size(), kRanks - static_cast<int>(kRanksPageMax));
  EXPECT_EQ(second.ranks(0).rank(), static_cast<int>(kRanksPageMax));
  EXPECT_EQ(second.placement().rbegin()->rank(), kRanks - 1);
  EXPECT_EQ(page(kRanks).ranks_size(), 0);
  EXPECT_EQ(page(-1).ranks(0).rank(), 0);

  grpc::ClientContext context;
  set_deadline(context);
  v1::ListJobsResponse listed;
  ASSERT_TRUE(muster_->ListJobs(&context, v1::ListJobsRequest(), &listed).ok());
  ASSERT_EQ(listed.jobs_size(), 1);
  EXPECT_EQ(listed.jobs(0).rank_count(), kRanks);
  EXPECT_EQ(listed.jobs(0).placement_size(), static_cast<int>(kRanksPageMax));
  EXPECT_EQ(listed.jobs(0).ranks_size(), 1);
}

TEST_F(ShellTest, WorkersAreListedByNameFromTheLastOneOfThePreviousPage) {
  std::vector<std::unique_ptr<FakeWorker>> workers;
  for (const char* name : {"b", "a", "c"}) {
    workers.push_back(std::make_unique<FakeWorker>(*fleet_));
    workers.back()->send(registration(name, 1, 1));
    ASSERT_TRUE(workers.back()->next().has_registered());
  }
  const auto after = [&](const std::string& name) {
    grpc::ClientContext context;
    set_deadline(context);
    v1::ListWorkersRequest request;
    request.set_after(name);
    v1::ListWorkersResponse response;
    EXPECT_TRUE(muster_->ListWorkers(&context, request, &response).ok());
    EXPECT_FALSE(response.more());
    std::string names;
    for (const v1::WorkerInfo& worker : response.workers()) names += worker.name();
    return names;
  };
  EXPECT_EQ(after(""), "abc");
  EXPECT_EQ(after("a"), "bc");
  EXPECT_EQ(after("c"), "");
}

}  // namespace
}  // namespace muster::coordinator
