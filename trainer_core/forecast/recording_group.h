// Process groups whose collectives are recorded instead of run (step_recorder.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "trainer_core/base/check.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/comm/transport_group.h"
#include "trainer_core/forecast/recorder.h"

namespace muster::trainer {

// A world of which only this rank exists.
class LonelyTransport final : public Transport {
 public:
  LonelyTransport(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Channel> open(std::string_view, std::span<const int>) override { return nullptr; }
  void fail(const std::string&) override {}

 private:
  const int rank_, size_;
};

inline std::string axes_name(const std::string& name) { return name.substr(0, name.find('#')); }

inline StepStream stream_of(int channel, CollectiveKind kind) {
  if (channel == kComputeChannel) return StepStream::kCompute;
  if (channel == kOverlapChannel) return StepStream::kOverlap;
  if (channel == kRingChannel) return StepStream::kRing;
  return kind == CollectiveKind::kSend ? StepStream::kSend : StepStream::kReceive;
}

class RecordingGroup final : public ProcessGroup {
 public:
  RecordingGroup(StepRecorder& recorder, GroupSpec spec, int rank, int channel)
      : recorder_(recorder), spec_(std::move(spec)), channel_(channel) {
    const auto own = std::ranges::find(spec_.members, rank);
    rank_ = static_cast<int>(own - spec_.members.begin());
    const std::set<int> nodes(spec_.nodes.begin(), spec_.nodes.end());
    group_ = recorder.group({.name = axes_name(spec_.name),
                             .ranks = size(),
                             .nodes = static_cast<int32_t>(nodes.size())});
  }

  const std::string& name() const override { return spec_.name; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(spec_.members.size()); }

  absl::Status all_reduce(BufferView data, std::string_view) override {
    return record(CollectiveKind::kAllReduce, "all-reduce", data, data);
  }
  absl::Status all_reduce_max(BufferView data, std::string_view) override {
    return record(CollectiveKind::kAllReduce, "all-reduce", data, data);
  }
  absl::Status all_gather(ConstBufferView input, BufferView output, std::string_view) override {
    return record(CollectiveKind::kAllGather, "all-gather", input, output);
  }
  absl::Status reduce_scatter(ConstBufferView input, BufferView output, std::string_view) override {
    return record(CollectiveKind::kReduceScatter, "reduce-scatter", input, output);
  }
  // Every rank has the same numbers of rows, so what others send equals what this rank sends.
  absl::Status all_to_all_v(ConstBufferView input, std::span<const size_t>, BufferView output,
                            std::span<const size_t>, std::string_view) override {
    if (input.dtype == DType::kI32 && input.bytes() == output.bytes())
      std::memcpy(output.data, input.data, input.bytes());
    return record(CollectiveKind::kAllToAll, "all-to-all", input, output);
  }
  absl::Status broadcast(BufferView data, int, std::string_view) override {
    return record(CollectiveKind::kBroadcast, "broadcast", data, data);
  }
  absl::Status send(ConstBufferView data, int, std::string_view) override {
    return record(CollectiveKind::kSend, "send", data, {});
  }
  absl::Status recv(BufferView data, int, std::string_view) override {
    return record(CollectiveKind::kRecv, "receive", {}, data);
  }
  absl::Status send_recv(ConstBufferView outgoing, int, BufferView incoming, int,
                         std::string_view) override {
    return record(CollectiveKind::kSendRecv, "send and receive", outgoing, incoming);
  }
  absl::Status barrier(std::string_view) override {
    return record(CollectiveKind::kBarrier, "barrier", {}, {});
  }
  SentBytes sent(CollectiveKind) const override { return {}; }
  Duration busy() const override { return {}; }
  void abort() override {}

 private:
  absl::Status record(CollectiveKind kind, const char* name, ConstBufferView input,
                      BufferView output) {
    // The recorder waits for each communication of another stream that was announced.
    MUSTER_CHECK(size() > 1 || channel_ == kComputeChannel)
        << "a collective of one rank in " << spec_.name;
    if (size() == 1) return absl::OkStatus();
    const MemoryRange from{.begin = input.data, .end = input.data + input.bytes()};
    const MemoryRange to{.begin = output.data, .end = output.data + output.bytes()};
    const double data = kind == CollectiveKind::kRecv ? static_cast<double>(output.bytes())
                                                      : static_cast<double>(input.bytes());
    TracedWork work{.kind = WorkKind::kCollective,
                    .name = name,
                    .bytes = data,
                    .collective = kind,
                    .group = group_};
    const StepStream stream = stream_of(channel_, kind);
    if (stream == StepStream::kCompute) {
      recorder_.compute(std::move(work), std::array{from, to});
    } else {
      recorder_.communicate(stream, std::move(work), from, to);
    }
    return absl::OkStatus();
  }

  StepRecorder& recorder_;
  const GroupSpec spec_;
  const int channel_;
  int rank_ = 0;
  int32_t group_ = 0;
};

}  // namespace muster::trainer
