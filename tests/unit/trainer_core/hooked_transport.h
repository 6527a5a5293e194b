// A transport that reports each message round of its rank to a test, which may delay the round or
// make it fail.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/comm/process_groups.h"
#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// Returns whether the group of this name is on `channel`. Requires that `channel` is not 0.
inline bool is_on_channel(std::string_view group, int channel) {
  return group.ends_with(absl::StrCat("#", channel));
}

// The callbacks of a test. They are called on the thread of the round, with the name of the
// channel.
struct RoundHooks {
  // Called before the round. If it returns an error, the round is skipped and returns this error.
  std::function<absl::Status(std::string_view channel)> before;
  // Called with the result of the round. May be empty.
  std::function<void(std::string_view channel, const absl::Status& status)> after = nullptr;
  // Called when the rank's channels are isolated. May be empty.
  std::function<void()> isolated = nullptr;
};

class HookedChannel : public Channel {
 public:
  HookedChannel(std::unique_ptr<Channel> channel, std::string name, const RoundHooks& hooks)
      : channel_(std::move(channel)), name_(std::move(name)), hooks_(hooks) {}

  size_t round_bytes_max(std::span<const int> members) const override {
    return channel_->round_bytes_max(members);
  }
  absl::Status exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    return run([&] { return channel_->exchange(out, in); });
  }
  absl::Status exchange_combine(std::span<const Outgoing> out, std::span<const int> from,
                                size_t bytes, Combine combine) override {
    return run([&] { return channel_->exchange_combine(out, from, bytes, combine); });
  }

 private:
  template <class Round>
  absl::Status run(const Round& round) {
    absl::Status status = hooks_.before(name_);
    if (status.ok()) status = round();
    if (hooks_.after) hooks_.after(name_, status);
    return status;
  }

  std::unique_ptr<Channel> channel_;
  const std::string name_;
  const RoundHooks& hooks_;
};

class HookedTransport : public Transport {
 public:
  // `hooks` must outlive the transport.
  HookedTransport(std::shared_ptr<Transport> transport, const RoundHooks& hooks)
      : transport_(std::move(transport)), hooks_(hooks) {}

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::unique_ptr<Channel> open(std::string_view name, std::span<const int> members) override {
    return std::make_unique<HookedChannel>(transport_->open(name, members), std::string(name),
                                           hooks_);
  }
  void fail(const std::string& reason) override { transport_->fail(reason); }
  void isolate_channels() override {
    transport_->isolate_channels();
    if (hooks_.isolated) hooks_.isolated();
  }

 private:
  std::shared_ptr<Transport> transport_;
  const RoundHooks& hooks_;
};

}  // namespace muster::trainer
