#include "trainer_core/comm/staged_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trainer_core/base/memory_plan.h"

namespace muster::trainer {
namespace {

class StagedGroup final : public ProcessGroup {
 public:
  StagedGroup(std::unique_ptr<ProcessGroup> group, const DeviceMemory& memory)
      : group_(std::move(group)), memory_(memory) {}

  const std::string& name() const override { return group_->name(); }
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }

  absl::Status all_reduce(BufferView data, std::string_view name) override {
    return in_place(data, [&](BufferView host) { return group_->all_reduce(host, name); });
  }
  absl::Status all_reduce_max(BufferView data, std::string_view name) override {
    return in_place(data, [&](BufferView host) { return group_->all_reduce_max(host, name); });
  }
  absl::Status all_gather(ConstBufferView input, BufferView output,
                          std::string_view name) override {
    if (!is_device(input) && !is_device(output)) return group_->all_gather(input, output, name);
    wait_for_computation();
    const BufferView all = room(0, output);
    const BufferView own = all.part(static_cast<size_t>(rank()) * input.count, input.count);
    fetch(input, own);
    return store(group_->all_gather(own, all, name), all, output);
  }
  absl::Status reduce_scatter(ConstBufferView input, BufferView output,
                              std::string_view name) override {
    return apart(input, output, [&](ConstBufferView in, BufferView out) {
      return group_->reduce_scatter(in, out, name);
    });
  }
  absl::Status all_to_all_v(ConstBufferView input, std::span<const size_t> send_counts,
                            BufferView output, std::span<const size_t> receive_counts,
                            std::string_view name) override {
    return apart(input, output, [&](ConstBufferView in, BufferView out) {
      return group_->all_to_all_v(in, send_counts, out, receive_counts, name);
    });
  }
  absl::Status broadcast(BufferView data, int root, std::string_view name) override {
    return in_place(data, [&](BufferView host) { return group_->broadcast(host, root, name); });
  }
  absl::Status send(ConstBufferView data, int to, std::string_view name) override {
    if (!is_device(data)) return group_->send(data, to, name);
    wait_for_computation();
    const BufferView host = room(0, data);
    fetch(data, host);
    return group_->send(host, to, name);
  }
  absl::Status recv(BufferView data, int from, std::string_view name) override {
    if (!is_device(data)) return group_->recv(data, from, name);
    wait_for_computation();
    const BufferView host = room(0, data);
    return store(group_->recv(host, from, name), host, data);
  }
  absl::Status send_recv(ConstBufferView outgoing, int to, BufferView incoming, int from,
                         std::string_view name) override {
    return apart(outgoing, incoming, [&](ConstBufferView in, BufferView out) {
      return group_->send_recv(in, to, out, from, name);
    });
  }
  absl::Status barrier(std::string_view name) override { return group_->barrier(name); }

  void follow(const std::shared_ptr<DeviceQueue>& computation) override {
    computation_ = computation;
  }
  SentBytes sent(CollectiveKind kind) const override { return group_->sent(kind); }
  Duration busy() const override { return group_->busy(); }
  void abort() override { group_->abort(); }

 private:
  bool is_device(ConstBufferView view) const { return memory_.holds(view.data); }

  // Blocks until the work is done that writes the outgoing buffers and reads the old contents of
  // incoming buffers. Later work sees the results, because copies are complete when they return.
  void wait_for_computation() const {
    if (computation_ != nullptr) computation_->mark()->wait();
  }

  // Returns the host buffer from `offset` on, with room for as many elements as `like`. Growth
  // discards its contents, so callers request the last part first.
  BufferView room(size_t offset, ConstBufferView like) {
    const size_t bytes = offset + like.bytes();
    if (bytes > room_bytes_) {
      room_.reset();
      room_ = memory_.allocate_host(bytes);
      room_bytes_ = bytes;
    }
    return {static_cast<std::byte*>(room_.get()) + offset, like.count, like.dtype};
  }
  void fetch(ConstBufferView from, BufferView to) const {
    if (is_device(from)) {
      memory_.download(from.data, to.data, from.bytes());
    } else if (from.count > 0) {
      std::memcpy(to.data, from.data, from.bytes());
    }
  }
  absl::Status store(const absl::Status& status, BufferView from, BufferView to) const {
    if (!status.ok()) return status;
    if (is_device(to)) {
      memory_.upload(from.data, to.data, from.bytes());
    } else if (from.count > 0) {
      std::memcpy(to.data, from.data, from.bytes());
    }
    return status;
  }

  template <class Body>
  absl::Status in_place(BufferView data, const Body& body) {
    if (!is_device(data)) return body(data);
    wait_for_computation();
    const BufferView host = room(0, data);
    fetch(data, host);
    return store(body(host), host, data);
  }
  // The host copy of the output follows that of the input.
  template <class Body>
  absl::Status apart(ConstBufferView input, BufferView output, const Body& body) {
    if (!is_device(input) && !is_device(output)) return body(input, output);
    wait_for_computation();
    const BufferView out = room(aligned_bytes(input.bytes()), output), in = room(0, input);
    fetch(input, in);
    return store(body(in, out), out, output);
  }

  std::unique_ptr<ProcessGroup> group_;
  const DeviceMemory& memory_;
  std::shared_ptr<DeviceQueue> computation_;  // null: callers wait for the computation
  std::shared_ptr<void> room_;
  size_t room_bytes_ = 0;
};

}  // namespace

std::unique_ptr<ProcessGroup> staged_group(std::unique_ptr<ProcessGroup> group,
                                           const DeviceMemory& memory) {
  if (memory.is_host()) return group;
  return std::make_unique<StagedGroup>(std::move(group), memory);
}

}  // namespace muster::trainer
