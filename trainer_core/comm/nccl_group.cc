#include "trainer_core/comm/nccl_group.h"

#include <absl/strings/str_cat.h>

#include "trainer_core/base/check.h"
#include "trainer_core/comm/collective_trace.h"
#include "trainer_core/comm/comm_stream.h"
#include "trainer_core/comm/nccl_communicator.h"

namespace muster::trainer {
namespace {

int type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return kNcclFloat32;
    case DType::kBf16:
      return kNcclBfloat16;
    case DType::kI32:
      return kNcclInt32;
    case DType::kI8:  // caches are not exchanged
      break;
  }
  return kNcclInt32;
}

class NcclGroup final : public ProcessGroup {
 public:
  NcclGroup(std::unique_ptr<ProcessGroup> group, const NcclOptions& options,
            const DeviceMemory& memory, ProgressWriter* page, uint32_t lowest_member)
      : group_(std::move(group)),
        api_(options.api),
        timeout_(options.timeout),
        failure_(options.failure),
        memory_(memory),
        trace_(page, absl::StrCat(group_->name(), " nccl"), static_cast<uint32_t>(group_->size()),
               lowest_member),
        end_(options, memory) {}

  const std::string& name() const override { return group_->name(); }
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }

  absl::Status all_reduce(BufferView data, std::string_view name) override {
    if (!is_ours(data, data)) return record_failure(group_->all_reduce(data, name));
    return run(CollectiveKind::kAllReduce, name, data, 2 * others(data.bytes()),
               [&](NcclCommunicator end, void* stream) {
                 return api_->all_reduce(data.data, data.data, data.count, type_of(data.dtype),
                                         kNcclSum, end, stream);
               });
  }
  absl::Status all_reduce_max(BufferView data, std::string_view name) override {
    return record_failure(group_->all_reduce_max(data, name));
  }
  absl::Status all_gather(ConstBufferView input, BufferView output,
                          std::string_view name) override {
    if (!is_ours(input, output)) return record_failure(group_->all_gather(input, output, name));
    return run(CollectiveKind::kAllGather, name, input, others(input.bytes() * ranks()),
               [&](NcclCommunicator end, void* stream) {
                 return api_->all_gather(input.data, output.data, input.count, type_of(input.dtype),
                                         end, stream);
               });
  }
  absl::Status reduce_scatter(ConstBufferView input, BufferView output,
                              std::string_view name) override {
    if (!is_ours(input, output) || input.dtype != output.dtype)
      return record_failure(group_->reduce_scatter(input, output, name));
    return run(CollectiveKind::kReduceScatter, name, input, others(input.bytes()),
               [&](NcclCommunicator end, void* stream) {
                 return api_->reduce_scatter(input.data, output.data, output.count,
                                             type_of(input.dtype), kNcclSum, end, stream);
               });
  }
  absl::Status all_to_all_v(ConstBufferView input, std::span<const size_t> send_counts,
                            BufferView output, std::span<const size_t> receive_counts,
                            std::string_view name) override {
    if (!is_ours(input, output))
      return record_failure(group_->all_to_all_v(input, send_counts, output, receive_counts, name));
    check_slices(input, send_counts, output, receive_counts);
    const uint64_t sent =
        input.bytes() - send_counts[static_cast<size_t>(rank())] * dtype_bytes(input.dtype);
    return run(CollectiveKind::kAllToAll, name, input, sent,
               [&](NcclCommunicator end, void* stream) {
                 size_t from = 0, to = 0;
                 return together([&](const auto& keep) {
                   for (size_t peer = 0; peer < ranks(); ++peer) {
                     keep(send(input.part(from, send_counts[peer]), peer, end, stream));
                     keep(recv(output.part(to, receive_counts[peer]), peer, end, stream));
                     from += send_counts[peer];
                     to += receive_counts[peer];
                   }
                 });
               });
  }
  absl::Status broadcast(BufferView data, int root, std::string_view name) override {
    if (!is_ours(data, data)) return record_failure(group_->broadcast(data, root, name));
    return run(CollectiveKind::kBroadcast, name, data, rank() == root ? data.bytes() : 0,
               [&](NcclCommunicator end, void* stream) {
                 return api_->broadcast(data.data, data.data, data.count, type_of(data.dtype), root,
                                        end, stream);
               });
  }
  absl::Status send(ConstBufferView data, int to, std::string_view name) override {
    if (!is_ours(data, data)) return record_failure(group_->send(data, to, name));
    return run(CollectiveKind::kSend, name, data, data.bytes(),
               [&](NcclCommunicator end, void* stream) {
                 return send(data, static_cast<size_t>(to), end, stream);
               });
  }
  absl::Status recv(BufferView data, int from, std::string_view name) override {
    if (!is_ours(data, data)) return record_failure(group_->recv(data, from, name));
    return run(CollectiveKind::kRecv, name, data, 0, [&](NcclCommunicator end, void* stream) {
      return recv(data, static_cast<size_t>(from), end, stream);
    });
  }
  absl::Status send_recv(ConstBufferView outgoing, int to, BufferView incoming, int from,
                         std::string_view name) override {
    if (!is_ours(outgoing, incoming))
      return record_failure(group_->send_recv(outgoing, to, incoming, from, name));
    return run(CollectiveKind::kSendRecv, name, outgoing, outgoing.bytes(),
               [&](NcclCommunicator end, void* stream) {
                 return together([&](const auto& keep) {
                   keep(send(outgoing, static_cast<size_t>(to), end, stream));
                   keep(recv(incoming, static_cast<size_t>(from), end, stream));
                 });
               });
  }
  absl::Status barrier(std::string_view name) override {
    return record_failure(group_->barrier(name));
  }

  void follow(const std::shared_ptr<DeviceQueue>& computation) override {
    computation_ = computation;
    group_->follow(computation);
  }
  absl::Status finish() override {
    return outstanding_ == nullptr ? absl::OkStatus() : outstanding_->wait_all();
  }
  SentBytes sent(CollectiveKind kind) const override {
    const SentBytes ours = trace_.sent(kind), theirs = group_->sent(kind);
    return {ours.total + theirs.total, ours.across_nodes + theirs.across_nodes};
  }
  Duration busy() const override { return trace_.busy() + group_->busy(); }
  void abort() override {
    end_.abort();
    group_->abort();
  }

 private:
  size_t ranks() const { return static_cast<size_t>(size()); }
  // Returns the bytes of a buffer, which has a slice for each rank, that go to other ranks.
  uint64_t others(size_t bytes) const { return bytes / ranks() * (ranks() - 1); }
  // Returns whether NCCL handles the buffers: device memory, in a group of more than one rank. An
  // empty buffer has no location: a rank with nothing to exchange takes the same path as the
  // others.
  bool is_ours(ConstBufferView input, ConstBufferView output) const {
    const auto is_device = [&](ConstBufferView view) {
      return view.count == 0 || memory_.holds(view.data);
    };
    return size() > 1 && is_device(input) && is_device(output);
  }

  // Returns `status`, or the first failure if any group of the rank has failed.
  absl::Status record_failure(const absl::Status& status) const {
    return status.ok() ? status : failure_->store_first(status);
  }

  NcclResult send(ConstBufferView data, size_t to, NcclCommunicator end, void* stream) const {
    if (data.count == 0) return kNcclSuccess;
    return api_->send(data.data, data.count, type_of(data.dtype), static_cast<int>(to), end,
                      stream);
  }
  NcclResult recv(BufferView data, size_t from, NcclCommunicator end, void* stream) const {
    if (data.count == 0) return kNcclSuccess;
    return api_->recv(data.data, data.count, type_of(data.dtype), static_cast<int>(from), end,
                      stream);
  }
  // Makes NCCL start the calls of `body` at the same time, because each may wait for the others.
  // Returns the first error.
  template <class Body>
  NcclResult together(const Body& body) const {
    NcclResult first = api_->group_start();
    const auto keep = [&](NcclResult result) {
      if (first == kNcclSuccess && result != kNcclInProgress) first = result;
    };
    if (first != kNcclSuccess) return first;
    body(keep);
    const NcclResult ended = api_->group_end();
    return first != kNcclSuccess ? first : ended;
  }

  template <class Call>
  absl::Status run(CollectiveKind kind, std::string_view name, ConstBufferView data, uint64_t sent,
                   const Call& call) {
    if (failure_->exists()) return failure_->status();
    const Collective collective{kind, name, data.bytes(), data.dtype};
    if (computation_ != nullptr) return run_in_order(collective, sent, call);
    return record_failure(trace_.run(collective, [&] {
      absl::Status status = launch(call, sent);
      if (status.ok()) status = end_.await(*end_.queue().mark(), timeout_, NcclEnd::Manner::kEager);
      return status;
    }));
  }

  template <class Call>
  absl::Status launch(const Call& call, uint64_t sent) {
    absl::Status status = end_.is_connected() ? absl::OkStatus() : end_.connect(*group_);
    if (status.ok()) status = end_.launch(call);
    if (status.ok()) trace_.add_sent(sent, /*across_nodes=*/false);
    return status;
  }

  // Enqueues the call in the order of the computation. Does not block.
  template <class Call>
  absl::Status run_in_order(const Collective& collective, uint64_t sent, const Call& call) {
    if (outstanding_ == nullptr)
      outstanding_ = CommStream::start([this] { end_.abort(); }, kOutstandingMax);
    const uint64_t number = trace_.enqueue(collective);
    const auto ready = computation_->mark();
    // The first collective connects the peers when it is called, before the device reaches it.
    if (!end_.is_connected()) trace_.start(number);
    const absl::Status called = launch(
        [&](NcclCommunicator end, void* stream) {
          end_.queue().wait_for(*ready);
          return call(end, stream);
        },
        sent);
    if (!called.ok()) {
      // An earlier call may be the cause of the error.
      const absl::Status first = outstanding_->wait_all();
      return first.ok() ? record_failure(trace_.explain(called, collective, number)) : first;
    }
    const auto done = end_.queue().mark();
    computation_->wait_for(*done);
    outstanding_->enqueue(
        [this, number, ready, done, collective, name = std::string(collective.name)] {
          const Collective own{collective.kind, name, collective.bytes, collective.dtype};
          return watch_collective(number, *ready, *done, own);
        });
    return absl::OkStatus();
  }

  // Monitors a collective on the thread of outstanding_.
  absl::Status watch_collective(uint64_t number, const DeviceMark& ready, const DeviceMark& done,
                                const Collective& collective) {
    constexpr auto kPatient = NcclEnd::Manner::kPatient;
    // There is no timeout before the collective starts, because the computation may take any time.
    absl::Status status = end_.await(ready, Duration::max(), kPatient);
    if (status.ok()) {
      trace_.start(number);
      status = end_.await(done, timeout_, kPatient);
    }
    if (!status.ok()) return record_failure(trace_.explain(status, collective, number));
    trace_.complete(number, done.since(ready));
    return status;
  }

  std::unique_ptr<ProcessGroup> group_;
  const std::shared_ptr<const NcclApi> api_;
  const Duration timeout_;
  const std::shared_ptr<FirstFailure> failure_;
  const DeviceMemory& memory_;
  CollectiveTrace trace_;
  NcclEnd end_;
  std::shared_ptr<DeviceQueue> computation_;  // null: collectives are done when they return
  // Null until a collective is called in an order. Destroyed before the objects that its work uses.
  std::unique_ptr<CommStream> outstanding_;
};

}  // namespace

std::unique_ptr<ProcessGroup> nccl_group(std::unique_ptr<ProcessGroup> group,
                                         const NcclOptions& options, const DeviceMemory& memory,
                                         ProgressWriter* page, uint32_t lowest_member) {
  return std::make_unique<NcclGroup>(std::move(group), options, memory, page, lowest_member);
}

}  // namespace muster::trainer
