#include "trainer_core/comm/world.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/time/time.h"
#include "trainer_core/comm/hybrid_transport.h"
#include "trainer_core/comm/rendezvous_client.h"

namespace muster::trainer {
namespace {

using std::chrono::milliseconds;

// The maximum time in which the ranks of a host exchange their memory, after all of them have
// joined.
constexpr milliseconds kHandshakeTimeout{10'000};

// Returns the time until `deadline`, rounded up. It is never 0, which some functions treat as no
// limit.
milliseconds time_until(Instant deadline) {
  return std::max(std::chrono::ceil<milliseconds>(deadline - monotonic_now()), milliseconds(1));
}

// Exchanges one text per rank through the store.
class Roll {
 public:
  static absl::StatusOr<Roll> open(const GlooOptions& options, Instant deadline) {
    auto client = RendezvousClient::connect(options.rendezvous, time_until(deadline));
    if (!client.ok()) return client.status();
    return Roll(options, std::move(*client), deadline);
  }

  // Publishes `mine` under `topic` and returns the texts of all ranks in rank order. Returns
  // DeadlineExceeded with the ranks that have published nothing.
  absl::StatusOr<std::vector<std::string>> call(const char* topic, const std::string& mine) {
    if (auto status = client_->set(key(topic, options_.rank), mine); !status.ok()) return status;
    std::vector<std::string> values;
    std::vector<int> missing;
    for (int rank = 0; rank < options_.size; ++rank) {
      auto value = client_->get(key(topic, rank), time_until(deadline_));
      if (value.ok()) {
        values.push_back(std::move(*value));
      } else if (absl::IsDeadlineExceeded(value.status())) {
        missing.push_back(rank);
      } else {
        return value.status();
      }
    }
    if (missing.empty()) return values;
    return absl::DeadlineExceededError(absl::StrCat(
        "rank ", options_.rank, " of ", options_.size, " waited ", options_.connect_timeout.count(),
        " ms for these ranks: ", absl::StrJoin(missing, ", ")));
  }

 private:
  Roll(const GlooOptions& options, std::unique_ptr<RendezvousClient> client, Instant deadline)
      : options_(options), client_(std::move(client)), deadline_(deadline) {}

  std::string key(const char* topic, int rank) const {
    return absl::StrCat(options_.scope, topic, "/", rank);
  }

  const GlooOptions& options_;
  std::unique_ptr<RendezvousClient> client_;
  Instant deadline_;
};

// Returns a number for each rank, which is the same for the ranks of a host. A rank with an empty
// host has a number of its own.
std::vector<int> number_hosts(const std::vector<std::string>& hosts) {
  std::map<std::string, int> numbers;
  std::vector<int> result;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const std::string name = hosts[rank].empty() ? absl::StrCat("rank ", rank) : hosts[rank];
    result.push_back(numbers.emplace(name, static_cast<int>(numbers.size())).first->second);
  }
  return result;
}

// The result of sharing memory.
struct Sharing {
  // Connects this host's ranks; null if there is only one, or if they share no memory.
  std::shared_ptr<Transport> transport;
  std::vector<int> hosts;  // by rank: the same number where memory is shared
};

// Creates the transport among the ranks of this host from their listeners' names; a rank that
// cannot share memory has no name.
absl::StatusOr<std::shared_ptr<Transport>> connect_neighbours(const GlooOptions& gloo,
                                                              const absl::StatusOr<ShmSeat>& seat,
                                                              const std::vector<int>& neighbours,
                                                              const std::vector<std::string>& names,
                                                              Instant deadline) {
  if (!seat.ok()) return seat.status();
  ShmOptions options{.rank = gloo.rank,
                     .world_size = gloo.size,
                     .listeners = {},
                     .deadline = std::min(deadline, monotonic_now() + kHandshakeTimeout),
                     .timeout = gloo.timeout};
  for (const int rank : neighbours) {
    const std::string& name = names[static_cast<size_t>(rank)];
    if (name.empty())
      return absl::UnavailableError(absl::StrCat("rank ", rank, " has no memory to share"));
    options.listeners[rank] = name;
  }
  return connect_shm(*seat, options);
}

absl::StatusOr<Sharing> share_memory(const WorldOptions& options, Roll& roll, Instant deadline) {
  const GlooOptions& gloo = options.gloo;
  const std::string& own = options.host;
  auto hosts = roll.call("host", own);
  if (!hosts.ok()) return hosts.status();
  std::vector<int> neighbours;
  for (size_t rank = 0; rank < hosts->size() && !own.empty(); ++rank) {
    if ((*hosts)[rank] == own) neighbours.push_back(static_cast<int>(rank));
  }
  const bool shares = neighbours.size() > 1;
  absl::StatusOr<ShmSeat> seat = absl::UnavailableError("no other rank is on this host");
  if (shares) seat = ShmSeat::take(static_cast<int>(neighbours.size()));
  // A rank that cannot share memory reports this before other ranks wait for it.
  const auto names = roll.call("listener", seat.ok() ? seat->listener().name() : "");
  if (!names.ok()) return names.status();
  Sharing sharing;
  absl::Status status;
  if (shares) {
    auto met = connect_neighbours(gloo, seat, neighbours, *names, deadline);
    status = met.status();
    if (status.ok()) sharing.transport = std::move(*met);
  }
  if (!status.ok() && options.notes != nullptr) {
    *options.notes << "rank " << gloo.rank
                   << " shares no memory with its host's others, which takes them to TCP: "
                   << status.message() << std::endl;
  }
  // All ranks of a host must use the same transport.
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
  const Instant deadline = monotonic_now() + options.gloo.connect_timeout;
  auto roll = Roll::open(options.gloo, deadline);
  if (!roll.ok()) return roll.status();
  auto sharing = share_memory(options, *roll, deadline);
  if (!sharing.ok()) return sharing.status();
  const int hosts = 1 + *std::max_element(sharing->hosts.begin(), sharing->hosts.end());
  if (sharing->transport != nullptr && hosts == 1) return std::move(sharing->transport);
  GlooOptions gloo = options.gloo;
  gloo.connect_timeout = time_until(deadline);
  auto far = connect_gloo(gloo);
  if (!far.ok() || hosts == options.gloo.size) return far;
  return make_hybrid(std::move(sharing->transport), std::move(*far), std::move(sharing->hosts));
}

}  // namespace muster::trainer
