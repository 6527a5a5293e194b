#include "trainer_core/comm/world.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/time.h"
#include "trainer_core/comm/hybrid_transport.h"
#include "trainer_core/comm/rendezvous_client.h"

namespace muster::trainer {
namespace {

using std::chrono::milliseconds;

// For ranks of one host to pass their memory on: all of them are there by then.
constexpr milliseconds kHandshakeTimeout{10'000};

// What each rank tells the others through the store.
class Roll {
 public:
  static absl::StatusOr<Roll> open(const GlooOptions& options) {
    auto client = RendezvousClient::connect(options.rendezvous, options.connect_timeout);
    if (!client.ok()) return client.status();
    return Roll(options, std::move(*client));
  }

  // Says `mine` under `topic`, and returns what all ranks say, by rank. DeadlineExceeded names those that say nothing.
  absl::StatusOr<std::vector<std::string>> call(const char* topic, const std::string& mine) {
    if (auto status = client_->set(key(topic, options_.rank), mine); !status.ok()) return status;
    std::vector<std::string> said;
    std::vector<int> missing;
    for (int rank = 0; rank < options_.size; ++rank) {
      const auto left = std::chrono::duration_cast<milliseconds>(deadline_ - monotonic_now());
      auto value = client_->get(key(topic, rank), std::max(left, milliseconds(0)));
      if (value.ok()) {
        said.push_back(std::move(*value));
      } else if (absl::IsDeadlineExceeded(value.status())) {
        missing.push_back(rank);
      } else {
        return value.status();
      }
    }
    if (missing.empty()) return said;
    return absl::DeadlineExceededError(absl::StrCat(
        "rank ", options_.rank, " of ", options_.size, " waited ", options_.connect_timeout.count(),
        " ms for these ranks: ", absl::StrJoin(missing, ", ")));
  }

 private:
  Roll(const GlooOptions& options, std::unique_ptr<RendezvousClient> client)
      : options_(options),
        client_(std::move(client)),
        deadline_(monotonic_now() + options.connect_timeout) {}

  std::string key(const char* topic, int rank) const {
    return absl::StrCat(options_.scope, topic, "/", rank);
  }

  const GlooOptions& options_;
  std::unique_ptr<RendezvousClient> client_;
  Instant deadline_;
};

// A number for each rank, the same for ranks of one host. A rank with no host has one of its own.
std::vector<int> number_hosts(const std::vector<std::string>& hosts) {
  std::map<std::string, int> numbers;
  std::vector<int> result;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const std::string name = hosts[rank].empty() ? absl::StrCat("rank ", rank) : hosts[rank];
    result.push_back(numbers.emplace(name, static_cast<int>(numbers.size())).first->second);
  }
  return result;
}

// What came of sharing memory.
struct Sharing {
  std::shared_ptr<Transport>
      transport;           // among this host's ranks; null where there is one, or they do not share
  std::vector<int> hosts;  // by rank: the same number where memory is shared
};

absl::StatusOr<Sharing> share_memory(const WorldOptions& options, Roll& roll) {
  const GlooOptions& gloo = options.gloo;
  const auto listener = HostListener::open();
  const std::string own = listener.ok() ? options.host : "";
  auto hosts = roll.call("host", own);
  if (!hosts.ok()) return hosts.status();
  const auto names = roll.call("listener", listener.ok() ? listener->name() : "");
  if (!names.ok()) return names.status();

  ShmOptions shm{.rank = gloo.rank,
                 .world_size = gloo.size,
                 .listeners = {},
                 .connect_timeout = kHandshakeTimeout,
                 .timeout = gloo.timeout};
  for (size_t rank = 0; rank < hosts->size() && !own.empty(); ++rank) {
    if ((*hosts)[rank] == own) shm.listeners[static_cast<int>(rank)] = (*names)[rank];
  }
  Sharing sharing;
  absl::Status status;
  if (shm.listeners.size() > 1) {
    auto connected = connect_shm(*listener, shm);
    status = connected.status();
    if (status.ok()) sharing.transport = std::move(*connected);
  }
  if (!status.ok() && options.notes != nullptr) {
    *options.notes << "rank " << gloo.rank
                   << " shares no memory with its host's others, which takes them to TCP: "
                   << status.message() << std::endl;
  }
  // All ranks of a host must take the same way.
  const auto votes = roll.call("shares", status.ok() ? "yes" : "no");
  if (!votes.ok()) return votes.status();
  std::set<std::string> apart;
  for (size_t rank = 0; rank < hosts->size(); ++rank) {
    if ((*votes)[rank] == "no") apart.insert((*hosts)[rank]);
  }
  for (std::string& host : *hosts) {
    if (apart.contains(host)) host.clear();
  }
  if (apart.contains(own)) sharing.transport = nullptr;
  sharing.hosts = number_hosts(*hosts);
  return sharing;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Transport>> connect_world(const WorldOptions& options) {
  auto roll = Roll::open(options.gloo);
  if (!roll.ok()) return roll.status();
  auto sharing = share_memory(options, *roll);
  if (!sharing.ok()) return sharing.status();
  const int hosts = 1 + *std::max_element(sharing->hosts.begin(), sharing->hosts.end());
  if (sharing->transport != nullptr && hosts == 1) return std::move(sharing->transport);
  auto far = connect_gloo(options.gloo);
  if (!far.ok() || hosts == options.gloo.size) return far;
  return make_hybrid(std::move(sharing->transport), std::move(*far), std::move(sharing->hosts));
}

}  // namespace muster::trainer
