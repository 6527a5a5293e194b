#include "trainer_core/comm/hybrid_transport.h"

#include <algorithm>
#include <set>
#include <utility>

#include "trainer_core/comm/shm.h"

namespace muster::trainer {
namespace {

constexpr int kNotOnThisHost = -1;

class HybridChannel : public Channel {
 public:
  // A null `shm` means that no other member is on this host. `hosts` and `shm_indices` are indexed
  // by member; `shm_indices` has the index of a member in the `shm` channel, or kNotOnThisHost.
  HybridChannel(Transport& transport, std::unique_ptr<Channel> shm,
                std::unique_ptr<Channel> network, std::vector<int> hosts,
                std::vector<int> shm_indices)
      : transport_(transport),
        shm_(std::move(shm)),
        network_(std::move(network)),
        hosts_(std::move(hosts)),
        shm_indices_(std::move(shm_indices)) {}

  // If a group spans hosts, a host may have only one member, which then uses the network only. Its
  // rounds must have the same size as those of members that also use shared memory.
  size_t round_bytes_max(std::span<const int> members) const override {
    std::set<int> hosts;
    for (const int member : members) hosts.insert(hosts_[static_cast<size_t>(member)]);
    if (hosts.size() == members.size()) return network_->round_bytes_max(members);
    return std::min(kShmRoundBytes, network_->round_bytes_max(members));
  }

  absl::Status exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    if (!broken_.ok()) return broken_;
    split(out);
    shm_in_.clear();
    network_in_.clear();
    for (const Incoming& part : in) {
      if (const int index = shm_index_of(part.from); index >= 0) {
        shm_in_.push_back({index, part.bytes});
      } else {
        network_in_.push_back(part);
      }
    }
    absl::Status status = exchange_network();
    if (status.ok() && !(shm_out_.empty() && shm_in_.empty()))
      status = shm_->exchange(shm_out_, shm_in_);
    return ended(std::move(status));
  }

  // Parts from other hosts are stored in scratch_ until those of this host have arrived.
  absl::Status exchange_combine(std::span<const Outgoing> out, std::span<const int> from,
                                size_t bytes, Combine combine) override {
    if (!broken_.ok()) return broken_;
    split(out);
    network_in_.clear();
    shm_from_.clear();
    scratch_.resize(std::max(scratch_.size(), bytes * from.size()));
    std::vector<const std::byte*> parts(from.size());
    std::vector<size_t> shm_positions;
    for (size_t i = 0; i < from.size(); ++i) {
      if (const int index = shm_index_of(from[i]); index >= 0) {
        shm_from_.push_back(index);
        shm_positions.push_back(i);
      } else {
        network_in_.push_back({from[i], std::span(scratch_).subspan(i * bytes, bytes)});
        parts[i] = network_in_.back().bytes.data();
      }
    }
    absl::Status status = exchange_network();
    const auto combine_all = [&](std::span<const std::byte* const> from_shm) {
      for (size_t i = 0; i < from_shm.size(); ++i) parts[shm_positions[i]] = from_shm[i];
      combine(parts);
    };
    if (status.ok() && shm_out_.empty() && shm_from_.empty()) {
      combine(parts);
    } else if (status.ok()) {
      status = shm_->exchange_combine(shm_out_, shm_from_, bytes, combine_all);
    }
    return ended(std::move(status));
  }

 private:
  int shm_index_of(int member) const { return shm_indices_[static_cast<size_t>(member)]; }

  void split(std::span<const Outgoing> out) {
    shm_out_.clear();
    network_out_.clear();
    for (const Outgoing& part : out) {
      if (const int index = shm_index_of(part.to); index >= 0) {
        shm_out_.push_back({index, part.bytes});
      } else {
        network_out_.push_back(part);
      }
    }
  }

  // Ends both ways after a failure of one, because peers wait on the other. Isolated channels are
  // the exception.
  absl::Status ended(absl::Status status) {
    if (!status.ok() && !transport_.isolated()) transport_.fail(std::string(status.message()));
    broken_ = status;
    return status;
  }

  absl::Status exchange_network() {
    if (network_out_.empty() && network_in_.empty()) return absl::OkStatus();
    return network_->exchange(network_out_, network_in_);
  }

  Transport& transport_;
  absl::Status broken_;  // the first failure
  std::unique_ptr<Channel> shm_;
  std::unique_ptr<Channel> network_;
  std::vector<int> hosts_;
  std::vector<int> shm_indices_;
  std::vector<Outgoing> shm_out_, network_out_;
  std::vector<Incoming> shm_in_, network_in_;
  std::vector<int> shm_from_;
  std::vector<std::byte> scratch_;
};

class HybridTransport : public Transport {
 public:
  HybridTransport(std::shared_ptr<Transport> shm, std::shared_ptr<Transport> network,
                  std::vector<int> hosts)
      : shm_(std::move(shm)), network_(std::move(network)), hosts_(std::move(hosts)) {}

  int rank() const override { return network_->rank(); }
  int size() const override { return network_->size(); }

  std::unique_ptr<Channel> open(std::string_view name, std::span<const int> members) override {
    std::vector<int> hosts, shm_indices, shm_members;
    for (const int member : members) {
      const bool on_this_host = host_of(member) == host_of(rank());
      hosts.push_back(host_of(member));
      shm_indices.push_back(on_this_host ? static_cast<int>(shm_members.size()) : kNotOnThisHost);
      if (on_this_host) shm_members.push_back(member);
    }
    if (shm_ != nullptr && shm_members.size() == members.size()) return shm_->open(name, members);
    return std::make_unique<HybridChannel>(
        *this, shm_ != nullptr && shm_members.size() > 1 ? shm_->open(name, shm_members) : nullptr,
        network_->open(name, members), std::move(hosts), std::move(shm_indices));
  }

  void isolate_channels() override {
    // Called first, so that a failure meanwhile does not end all channels.
    Transport::isolate_channels();
    if (shm_ != nullptr) shm_->isolate_channels();
    network_->isolate_channels();
  }
  void fail(const std::string& reason) override {
    if (shm_ != nullptr) shm_->fail(reason);
    network_->fail(reason);
  }

 private:
  int host_of(int rank) const { return hosts_[static_cast<size_t>(rank)]; }

  std::shared_ptr<Transport> shm_;
  std::shared_ptr<Transport> network_;
  std::vector<int> hosts_;
};

}  // namespace

std::shared_ptr<Transport> make_hybrid(std::shared_ptr<Transport> shm,
                                       std::shared_ptr<Transport> network, std::vector<int> hosts) {
  return std::make_shared<HybridTransport>(std::move(shm), std::move(network), std::move(hosts));
}

}  // namespace muster::trainer
