#include "trainer_core/comm/hybrid_transport.h"

#include <algorithm>
#include <set>
#include <utility>

#include "trainer_core/comm/shm.h"

namespace muster::trainer {
namespace {

constexpr int kFar = -1;

class HybridChannel : public Channel {
 public:
  // A null `near` means that this rank is alone on its host. `hosts` is indexed by member;
  // `near_index` is a member's index in the near channel, kFar for others.
  HybridChannel(Transport& transport, std::unique_ptr<Channel> near, std::unique_ptr<Channel> far,
                std::vector<int> hosts, std::vector<int> near_index)
      : transport_(transport),
        near_(std::move(near)),
        far_(std::move(far)),
        hosts_(std::move(hosts)),
        near_index_(std::move(near_index)) {}

  // If a group spans hosts, some hosts may have only one of its members: its round size must match
  // the others', too.
  size_t round_bytes_max(std::span<const int> members) const override {
    std::set<int> hosts;
    for (const int member : members) hosts.insert(hosts_[static_cast<size_t>(member)]);
    if (hosts.size() == members.size()) return far_->round_bytes_max(members);
    return std::min(kShmRoundBytes, far_->round_bytes_max(members));
  }

  absl::Status exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    if (!broken_.ok()) return broken_;
    split(out);
    near_in_.clear();
    far_in_.clear();
    for (const Incoming& part : in) {
      if (const int near = near_of(part.from); near >= 0) {
        near_in_.push_back({near, part.bytes});
      } else {
        far_in_.push_back(part);
      }
    }
    absl::Status status = run_far();
    if (status.ok() && !(near_out_.empty() && near_in_.empty()))
      status = near_->exchange(near_out_, near_in_);
    return ended(std::move(status));
  }

  // Parts from far ranks wait in scratch until the near ones have arrived.
  absl::Status exchange_combine(std::span<const Outgoing> out, std::span<const int> from,
                                size_t bytes, Combine combine) override {
    if (!broken_.ok()) return broken_;
    split(out);
    far_in_.clear();
    near_from_.clear();
    scratch_.resize(std::max(scratch_.size(), bytes * from.size()));
    std::vector<const std::byte*> parts(from.size());
    std::vector<size_t> near_places;
    for (size_t i = 0; i < from.size(); ++i) {
      if (const int near = near_of(from[i]); near >= 0) {
        near_from_.push_back(near);
        near_places.push_back(i);
      } else {
        far_in_.push_back({from[i], std::span(scratch_).subspan(i * bytes, bytes)});
        parts[i] = far_in_.back().bytes.data();
      }
    }
    absl::Status status = run_far();
    const auto combine_all = [&](std::span<const std::byte* const> near) {
      for (size_t i = 0; i < near.size(); ++i) parts[near_places[i]] = near[i];
      combine(parts);
    };
    if (status.ok() && near_out_.empty() && near_from_.empty()) {
      combine(parts);
    } else if (status.ok()) {
      status = near_->exchange_combine(near_out_, near_from_, bytes, combine_all);
    }
    return ended(std::move(status));
  }

 private:
  int near_of(int member) const { return near_index_[static_cast<size_t>(member)]; }

  void split(std::span<const Outgoing> out) {
    near_out_.clear();
    far_out_.clear();
    for (const Outgoing& part : out) {
      if (const int near = near_of(part.to); near >= 0) {
        near_out_.push_back({near, part.bytes});
      } else {
        far_out_.push_back(part);
      }
    }
  }

  // A failure on one way ends the other, too: peers wait there. Unless channels are isolated.
  absl::Status ended(absl::Status status) {
    if (!status.ok() && !transport_.isolated()) transport_.fail(std::string(status.message()));
    broken_ = status;
    return status;
  }

  absl::Status run_far() {
    if (far_out_.empty() && far_in_.empty()) return absl::OkStatus();
    return far_->exchange(far_out_, far_in_);
  }

  Transport& transport_;
  absl::Status broken_;  // the first failure
  std::unique_ptr<Channel> near_;
  std::unique_ptr<Channel> far_;
  std::vector<int> hosts_;
  std::vector<int> near_index_;
  std::vector<Outgoing> near_out_, far_out_;
  std::vector<Incoming> near_in_, far_in_;
  std::vector<int> near_from_;
  std::vector<std::byte> scratch_;
};

class HybridTransport : public Transport {
 public:
  HybridTransport(std::shared_ptr<Transport> near, std::shared_ptr<Transport> far,
                  std::vector<int> hosts)
      : near_(std::move(near)), far_(std::move(far)), hosts_(std::move(hosts)) {}

  int rank() const override { return far_->rank(); }
  int size() const override { return far_->size(); }

  std::unique_ptr<Channel> open(std::string_view name, std::span<const int> members) override {
    std::vector<int> hosts, near_index, near_members;
    for (const int member : members) {
      const bool near = host_of(member) == host_of(rank());
      hosts.push_back(host_of(member));
      near_index.push_back(near ? static_cast<int>(near_members.size()) : kFar);
      if (near) near_members.push_back(member);
    }
    if (near_ != nullptr && near_members.size() == members.size())
      return near_->open(name, members);
    return std::make_unique<HybridChannel>(
        *this,
        near_ != nullptr && near_members.size() > 1 ? near_->open(name, near_members) : nullptr,
        far_->open(name, members), std::move(hosts), std::move(near_index));
  }

  void isolate_channels() override {
    Transport::isolate_channels();  // first: what fails meanwhile must not end all
    if (near_ != nullptr) near_->isolate_channels();
    far_->isolate_channels();
  }
  void fail(const std::string& reason) override {
    if (near_ != nullptr) near_->fail(reason);
    far_->fail(reason);
  }

 private:
  int host_of(int rank) const { return hosts_[static_cast<size_t>(rank)]; }

  std::shared_ptr<Transport> near_;
  std::shared_ptr<Transport> far_;
  std::vector<int> hosts_;
};

}  // namespace

std::shared_ptr<Transport> make_hybrid(std::shared_ptr<Transport> near,
                                       std::shared_ptr<Transport> far, std::vector<int> hosts) {
  return std::make_shared<HybridTransport>(std::move(near), std::move(far), std::move(hosts));
}

}  // namespace muster::trainer
