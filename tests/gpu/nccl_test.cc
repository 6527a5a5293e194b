// NCCL on GPUs: its functions as process groups call them, on one GPU with a communicator of one
// rank. With two GPUs, also trainings of ranks on a GPU each, compared with the same ranks on one
// GPU, which communicate through host memory.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/time/time.h"
#include "tests/gpu/gpu_device.h"
#include "tests/gpu/nccl_device.h"
#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/parallel/mesh_configs.h"
#include "tests/unit/trainer_core/train_helpers.h"

namespace muster::trainer {
namespace {

using testing::AnyOf;
using testing::Each;
using testing::Eq;

constexpr auto kPatience = std::chrono::seconds(60);

class Nccl : public testing::Test {
 protected:
  void SetUp() override {
    const auto found = nccl_of_device();
    if (!found.ok()) GTEST_SKIP() << found.status().message();
    api_ = *found;
  }

  // Waits for a non-blocking call, and returns its result.
  NcclResult outcome_of(NcclResult called, NcclCommunicator communicator) const {
    if (called != kNcclInProgress) return called;
    const Instant deadline = monotonic_now() + kPatience;
    for (NcclResult found = kNcclInProgress;;) {
      const NcclResult queried = api_->async_error(communicator, &found);
      if (queried != kNcclSuccess) return queried;
      if (found != kNcclInProgress || monotonic_now() > deadline) return found;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // Returns a communicator of one rank, created as in NcclEnd.
  NcclCommunicator connect() const {
    NcclUniqueId id;
    EXPECT_EQ(api_->unique_id(&id), kNcclSuccess);
    NcclConfig config;
    NcclCommunicator communicator = nullptr;
    const NcclResult called = api_->init(&communicator, 1, id, 0, &config);
    EXPECT_THAT(called, AnyOf(Eq(kNcclSuccess), Eq(kNcclInProgress))) << api_->error_text(called);
    const NcclResult result = outcome_of(called, communicator);
    EXPECT_EQ(result, kNcclSuccess) << api_->error_text(result);
    return communicator;
  }

  std::shared_ptr<const NcclApi> api_;
};

TEST_F(Nccl, CommunicatorOfOneRank) {
  const auto device = gpu_backend({}).value();
  const DeviceMemory& memory = device->memory();
  const NcclCommunicator communicator = connect();
  ASSERT_NE(communicator, nullptr);

  constexpr size_t kCount = 100'003;
  std::vector<float> brought(kCount), got(kCount);
  for (size_t i = 0; i < kCount; ++i) brought[i] = static_cast<float>(i) / 8;
  const auto from = memory.allocate(kCount * sizeof(float));
  const auto to = memory.allocate(kCount * sizeof(float));
  memory.upload(brought.data(), from.get(), kCount * sizeof(float));
  const auto queue = memory.open_queue();
  const auto before = queue->mark();
  const NcclResult called = api_->all_reduce(from.get(), to.get(), kCount, kNcclFloat32, kNcclSum,
                                             communicator, queue->handle());
  ASSERT_EQ(outcome_of(called, communicator), kNcclSuccess);
  const auto done = queue->mark();
  const Instant deadline = monotonic_now() + kPatience;
  while (!done->is_done() && monotonic_now() < deadline) std::this_thread::yield();
  ASSERT_TRUE(done->is_done());
  EXPECT_GE(done->since(*before), Duration::zero());
  memory.download(to.get(), got.data(), kCount * sizeof(float));
  EXPECT_EQ(got, brought);

  NcclResult found = kNcclInProgress;
  EXPECT_EQ(api_->async_error(communicator, &found), kNcclSuccess);
  EXPECT_EQ(found, kNcclSuccess);
  EXPECT_EQ(outcome_of(api_->finalize(communicator), communicator), kNcclSuccess);
  EXPECT_EQ(api_->destroy(communicator), kNcclSuccess);

  const NcclCommunicator other = connect();
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(api_->abort(other), kNcclSuccess);
}

// Counts the communicators that its functions create. One instance at a time, because NCCL's
// functions take no context.
class CountedNccl {
 public:
  explicit CountedNccl(const NcclApi& api) : init_(api.init), counted_(api) {
    now_ = this;
    counted_.init = [](NcclCommunicator* communicator, int ranks, NcclUniqueId id, int rank,
                       NcclConfig* config) {
      ++now_->communicators_;
      return now_->init_(communicator, ranks, id, rank, config);
    };
  }
  ~CountedNccl() { now_ = nullptr; }
  CountedNccl(const CountedNccl&) = delete;
  CountedNccl& operator=(const CountedNccl&) = delete;

  std::shared_ptr<const NcclApi> api() const { return std::make_shared<const NcclApi>(counted_); }
  int communicators() const { return communicators_; }

 private:
  static inline CountedNccl* now_ = nullptr;

  const decltype(NcclApi::init) init_;
  NcclApi counted_;
  std::atomic<int> communicators_ = 0;
};

struct Job {
  const char* name;
  ModelConfig (*model)();
  MeshAxis axis;
};
void PrintTo(const Job& job, std::ostream* out) { *out << job.name; }

class NcclBetweenGpus : public Nccl, public testing::WithParamInterface<Job> {};

INSTANTIATE_TEST_SUITE_P(All, NcclBetweenGpus,
                         testing::Values(Job{"data", sharded_llama, MeshAxis::kData},
                                         Job{"fsdp", sharded_llama, MeshAxis::kFsdp},
                                         Job{"tensor", sharded_llama, MeshAxis::kTensor},
                                         Job{"sequence", sharded_llama, MeshAxis::kSequence},
                                         Job{"context", sharded_llama, MeshAxis::kContext},
                                         Job{"experts", sharded_glam, MeshAxis::kExpert}),
                         [](const auto& job) { return std::string(job.param.name); });

TEST_P(NcclBetweenGpus, EqualsOneGpu) {
  if (gpu_count() < 2) GTEST_SKIP() << "there is one GPU, and NCCL requires one per rank";
  TrainConfig config = config_of(GetParam().model(), mesh({{GetParam().axis, 2}}), /*length=*/8);
  config.model.num_layers = 2;
  config.steps = 3;
  config.enable_checkpointing = false;
  config.threads = 1;
  config.per_device_batch_size = std::max(1, config.per_device_batch_size / 2);
  const RunResult one = run(config);
  ASSERT_THAT(one.codes, Each(ExitCode::kOk)) << one.err;
  const OnOwnGpus apart;
  const CountedNccl counted(*api_);
  const OnNccl on_nccl({.api = counted.api()});
  const RunResult two = run(config);
  ASSERT_THAT(two.codes, Each(ExitCode::kOk)) << two.err;
  EXPECT_TRUE(counted.communicators() > 0 || two.out.find("collectives: NCCL") != std::string::npos)
      << two.out;
  ASSERT_EQ(two.losses().size(), one.losses().size());
  // The sum of two ranks' values does not depend on their order.
  for (size_t step = 0; step < one.losses().size(); ++step)
    EXPECT_EQ(two.losses()[step], one.losses()[step]) << step;
}

}  // namespace
}  // namespace muster::trainer
