// Runs of calls as CUDA graphs: when they are captured, and what happens to runs that cannot be
// captured. The emulated device refuses the same calls as a real one.
#include <gmock/gmock.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cuda_runtime.h"
#include "tests/gpu/emulated/graphs.h"
#include "trainer_core/ops/cuda/device/cuda.h"
#include "trainer_core/ops/replay.h"

namespace muster::trainer {
namespace {

using emulated::graphs;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kNumbers = 100;

class Graphs : public testing::Test {
 protected:
  Tensor tensor(size_t i) const {
    return Tensor::f32(static_cast<float*>(room_[i]->data()), {kNumbers});
  }
  // sum += x
  void add() { ops_->add(sum_, x_, sum_); }
  float sum() {
    std::vector<float> numbers(kNumbers);
    ops_->download(sum_, numbers.data());
    return numbers.back();
  }
  int64_t launches() const { return graphs().launches - launches_; }

  const std::unique_ptr<Ops> ops_ = cuda_ops({.scratch_bytes = 4096, .algorithms_path = {}});
  const std::shared_ptr<Replayer> replayer_ = ops_->make_replayer();
  const std::array<std::unique_ptr<CudaMemory>, 2> room_ = {
      std::make_unique<CudaMemory>(kNumbers * sizeof(float)),
      std::make_unique<CudaMemory>(kNumbers * sizeof(float))};
  const Tensor x_ = tensor(0), sum_ = tensor(1);
  const int64_t launches_ = graphs().launches;
};

TEST_F(Graphs, AreCapturedTheSecondTimeWithEqualResults) {
  for (int time = 1; time <= 4; ++time) {
    ops_->fill(x_, static_cast<float>(time));
    replayer_->replay({1}, [&] {
      add();
      add();
    });
    EXPECT_EQ(sum(), static_cast<float>(time * (time + 1)));
    EXPECT_EQ(launches(), time - 1);
  }
  EXPECT_THAT(ops_->take_notes(), IsEmpty());
}

TEST_F(Graphs, AreSeparatePerKeyAndReplayer) {
  const auto other = ops_->make_replayer();
  ops_->fill(x_, 1);
  const auto once = [&] { add(); };
  const auto twice = [&] {
    add();
    add();
  };
  for (int time = 0; time < 3; ++time) {
    replayer_->replay({1, 0, 0, 0}, once);
    replayer_->replay({1, 0, 0, 1}, twice);
    other->replay({1, 0, 0, 0}, twice);
  }
  EXPECT_EQ(sum(), 15);
  EXPECT_EQ(launches(), 6);
}

TEST_F(Graphs, AreDestroyedWithTheirReplayer) {
  const int64_t before = graphs().destroyed;
  auto other = ops_->make_replayer();
  for (int time = 0; time < 2; ++time) other->replay({1}, [&] { add(); });
  EXPECT_EQ(graphs().destroyed, before);
  // The launched graphs have not executed yet.
  other.reset();
  EXPECT_EQ(graphs().destroyed, before + 1);
  EXPECT_EQ(sum(), 0);
}

// A call that cannot be recorded executes once per replay, in its place: it adds 10 to the sum so
// far.
TEST_F(Graphs, ExecuteCallsThatCannotBeRecorded) {
  int calls = 0;
  for (int time = 1; time <= 4; ++time) {
    ops_->fill(x_, 1);
    replayer_->replay({1}, [&] {
      replayer_->call_unrecorded([&] { ++calls; });
      ops_->fill(sum_, 0);
      add();
      replayer_->call_unrecorded([this] {
        ops_->fill(x_, sum() + 10);  // waits for the stream
      });
      add();
      replayer_->call_unrecorded([&] { ++calls; });
    });
    EXPECT_EQ(sum(), 12) << time;
    EXPECT_EQ(calls, 2 * time);
    EXPECT_EQ(launches(), 2 * (time - 1));
  }
  EXPECT_THAT(ops_->take_notes(), IsEmpty());
}

// A call in the second part cannot be captured: by then no call of the run has been executed.
TEST_F(Graphs, FallBackToCallsIfALaterPartFails) {
  ops_->fill(x_, 1);
  int calls = 0;
  for (int time = 1; time <= 3; ++time) {
    replayer_->replay({1}, [&] {
      add();
      replayer_->call_unrecorded([&] { ++calls; });
      (void)ops_->sum(x_);
      add();
      replayer_->call_unrecorded([&] { ++calls; });
      add();
    });
    EXPECT_EQ(sum(), static_cast<float>(3 * time));
    EXPECT_EQ(calls, 2 * time);
  }
  EXPECT_EQ(launches(), 0);
  EXPECT_THAT(ops_->take_notes(), ElementsAre(HasSubstr("no CUDA graphs of some calls: ")));
}

TEST_F(Graphs, AreComparedWithTheirCalls) {
  float value = 1;
  const auto calls = [&] {
    ops_->fill(x_, value);
    if (value == 3) add();
    add();
  };
  for (int time = 0; time < 3; ++time) replayer_->replay({1}, calls);
  EXPECT_EQ(sum(), 3);
  value = 2;
  EXPECT_DEATH(replayer_->replay({1}, calls), "a call or its arguments differ");
  value = 3;
  EXPECT_DEATH(replayer_->replay({1}, calls), "more or fewer calls than the run");
  EXPECT_DEATH(replayer_->replay({1}, [&] { replayer_->call_unrecorded([] {}); }),
               "more parts than before, or fewer");
}

TEST_F(Graphs, FallBackToCallsIfTheDriverRefuses) {
  graphs().are_refused = true;
  ops_->fill(x_, 1);
  for (uint32_t key = 1; key <= 2; ++key)
    for (int time = 0; time < 3; ++time) replayer_->replay({key}, [&] { add(); });
  graphs().are_refused = false;
  EXPECT_EQ(sum(), 6);
  EXPECT_EQ(launches(), 0);
  EXPECT_THAT(ops_->take_notes(),
              ElementsAre(HasSubstr("no CUDA graphs of some calls: cudaStreamBeginCapture ends "
                                    "with cudaErrorNotSupported")));
}

// A call that does not belong in a run, and the device's error.
struct ForbiddenCall {
  const char* name;
  std::function<void(Ops& ops, const Tensor& x)> what;
};
void PrintTo(const ForbiddenCall& call, std::ostream* out) { *out << call.name; }

class ForbiddenCalls : public Graphs, public testing::WithParamInterface<ForbiddenCall> {};

INSTANTIATE_TEST_SUITE_P(
    All, ForbiddenCalls,
    testing::Values(
        ForbiddenCall{"a_host_that_waits", [](Ops& ops, const Tensor& x) { ops.sum(x); }},
        ForbiddenCall{"a_host_that_waits_for_an_event",
                      [](Ops& ops, const Tensor&) { ops.queue()->mark()->wait(); }},
        ForbiddenCall{"a_host_that_asks_for_an_event",
                      [](Ops& ops, const Tensor&) { (void)ops.queue()->mark()->is_done(); }},
        ForbiddenCall{"pageable_memory",
                      [](Ops& ops, const Tensor& x) {
                        const std::vector<float> ones(kNumbers, 1);
                        ops.upload(ones.data(), x);
                      }},
        ForbiddenCall{"an_allocation",
                      [](Ops&, const Tensor&) {
                        void* room = nullptr;
                        if (cudaMalloc(&room, 1) == cudaSuccess) cudaFree(room);
                      }},
        ForbiddenCall{"page_locked_memory_that_is_allocated",
                      [](Ops&, const Tensor&) {
                        void* room = nullptr;
                        if (cudaHostAlloc(&room, 1, cudaHostAllocMapped) == cudaSuccess)
                          cudaFreeHost(room);
                      }},
        ForbiddenCall{"a_device_that_is_waited_for",
                      [](Ops&, const Tensor&) { (void)cudaDeviceSynchronize(); }},
        ForbiddenCall{"what_came_before_it",
                      [](Ops& ops, const Tensor&) {
                        cudaStream_t other = nullptr;
                        cudaEvent_t event = nullptr;
                        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
                        cudaEventCreateWithFlags(&event, cudaEventBlockingSync);
                        cudaEventRecord(event, other);
                        cudaStreamWaitEvent(static_cast<cudaStream_t>(ops.queue()->handle()), event,
                                            0);
                        cudaEventDestroy(event);
                        cudaStreamDestroy(other);
                      }},
        ForbiddenCall{"another_stream_that_does_not_come_back",
                      [](Ops& ops, const Tensor&) {
                        cudaStream_t other = nullptr;
                        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
                        cudaEvent_t event = nullptr;
                        cudaEventCreateWithFlags(&event, cudaEventBlockingSync);
                        cudaEventRecord(event, static_cast<cudaStream_t>(ops.queue()->handle()));
                        cudaStreamWaitEvent(other, event, 0);
                        cudaEventDestroy(event);
                        cudaStreamDestroy(other);
                      }}),
    [](const auto& call) { return std::string(call.param.name); });

TEST_P(ForbiddenCalls, FallBackToCalls) {
  ops_->fill(x_, 1);
  for (int time = 1; time <= 3; ++time) {
    replayer_->replay({1}, [&] {
      add();
      GetParam().what(*ops_, x_);
      add();
    });
    EXPECT_EQ(sum(), static_cast<float>(2 * time));
  }
  EXPECT_EQ(launches(), 0);
  EXPECT_THAT(ops_->take_notes(), ElementsAre(HasSubstr("no CUDA graphs of some calls: ")));
  // The stream works as before, and other calls are captured.
  for (int time = 0; time < 3; ++time) replayer_->replay({2}, [&] { add(); });
  EXPECT_EQ(sum(), 9);
  EXPECT_EQ(launches(), 2);
}

}  // namespace
}  // namespace muster::trainer
