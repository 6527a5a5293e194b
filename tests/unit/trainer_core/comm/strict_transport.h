// A transport whose sends return only when the receiver has the message, and which records all
// messages.
//
// The messages of each thread are determined by the config and do not depend on time, and on this
// transport a round ends only when all its participants have reached it. So if a run completes on
// this transport, where no message is ever in transit, it completes on every transport and with
// every schedule of threads: it has no hidden deadlock.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gtest/gtest.h>

#include "trainer_core/comm/transport.h"

namespace muster::trainer {

// The messages that the ranks of a world have sent, and those that they have expected. Thread-safe.
class MessageLog {
 public:
  // The bytes of each message of a channel from one member to another, in order.
  using Sizes = std::vector<size_t>;

  void add(const std::string& channel, int from, int to, bool sent, size_t bytes) {
    const std::lock_guard lock(mutex_);
    Pair& pair = pairs_[{channel, from, to}];
    (sent ? pair.sent : pair.expected).push_back(bytes);
  }

  // Checks that every message that was sent was also expected, and the reverse.
  void expect_that_all_is_met() const {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(pairs_.empty());
    for (const auto& [key, pair] : pairs_) {
      const auto& [channel, from, to] = key;
      EXPECT_EQ(pair.sent, pair.expected) << channel << ": " << from << " to " << to;
    }
  }

 private:
  struct Pair {
    Sizes sent, expected;
  };
  mutable std::mutex mutex_;
  std::map<std::tuple<std::string, int, int>, Pair> pairs_;
};

class StrictChannel : public Channel {
 public:
  StrictChannel(std::unique_ptr<Channel> channel, MessageLog& log, std::string name, int own)
      : channel_(std::move(channel)), log_(log), name_(std::move(name)), own_(own) {}

  size_t round_bytes_max(std::span<const int> members) const override {
    return channel_->round_bytes_max(members);
  }

  absl::Status exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    std::vector<int> from;
    for (const Incoming& part : in) {
      from.push_back(part.from);
      log_.add(name_, part.from, own_, /*sent=*/false, part.bytes.size());
    }
    const std::vector<int> to = log_sent(out);
    const absl::Status status = channel_->exchange(out, in);
    return status.ok() ? acknowledge(to, from) : status;
  }

  absl::Status exchange_combine(std::span<const Outgoing> out, std::span<const int> from,
                                size_t bytes, Combine combine) override {
    for (const int member : from) log_.add(name_, member, own_, /*sent=*/false, bytes);
    const std::vector<int> to = log_sent(out);
    const absl::Status status = channel_->exchange_combine(out, from, bytes, combine);
    return status.ok() ? acknowledge(to, from) : status;
  }

 private:
  std::vector<int> log_sent(std::span<const Outgoing> out) {
    std::vector<int> to;
    for (const Outgoing& part : out) {
      to.push_back(part.to);
      log_.add(name_, own_, part.to, /*sent=*/true, part.bytes.size());
    }
    return to;
  }

  // Sends an acknowledgement to the senders, and waits for those of the receivers.
  absl::Status acknowledge(std::span<const int> to, std::span<const int> from) {
    std::vector<Outgoing> out;
    for (const int member : from) out.push_back({member, std::as_bytes(std::span(kWord))});
    std::vector<std::byte> words(to.size());
    std::vector<Incoming> in;
    for (size_t i = 0; i < to.size(); ++i) in.push_back({to[i], std::span(words).subspan(i, 1)});
    return channel_->exchange(out, in);
  }

  static constexpr std::array<char, 1> kWord = {'!'};

  std::unique_ptr<Channel> channel_;
  MessageLog& log_;
  std::string name_;
  int own_;  // this rank's index among the members
};

class StrictTransport : public Transport {
 public:
  StrictTransport(std::shared_ptr<Transport> transport, MessageLog& log)
      : transport_(std::move(transport)), log_(log) {}

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::unique_ptr<Channel> open(std::string_view name, std::span<const int> members) override {
    const auto own = std::find(members.begin(), members.end(), rank()) - members.begin();
    return std::make_unique<StrictChannel>(
        transport_->open(name, members), log_,
        absl::StrCat(std::string(name), " of ranks ", absl::StrJoin(members, ", ")),
        static_cast<int>(own));
  }
  void fail(const std::string& reason) override { transport_->fail(reason); }

 private:
  std::shared_ptr<Transport> transport_;
  MessageLog& log_;
};

}  // namespace muster::trainer
