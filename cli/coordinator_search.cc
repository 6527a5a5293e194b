#include "cli/coordinator_search.h"

#include <netdb.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <grpcpp/grpcpp.h>

#include "daemon/channel_arguments.h"
#include "daemon/endpoint.h"
#include "daemon/grpc_deadline.h"
#include "daemon/limits.h"
#include "muster/v1/admin.grpc.pb.h"

namespace muster::cli {
namespace {

// The time limit of a round: a handshake takes milliseconds, and TCP repeats a lost first packet
// after a second.
constexpr Duration kRoundMax = std::chrono::milliseconds(1500);
// The interval at which the states of all channels are read.
constexpr Duration kStatePoll = std::chrono::milliseconds(10);
// The time limit of a call that shows why an address does not answer.
constexpr Duration kFailureMax = std::chrono::milliseconds(500);
// A coordinator that stands still loses its connections after these times. Its successor leads by
// then.
constexpr int kPingIntervalMs = 2'000;
constexpr int kPingTimeoutMs = 2'000;

}  // namespace

bool names_several(const std::string& address) {
  const auto endpoint = daemon::parse_endpoint("--coordinator", address);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (!endpoint.ok() || getaddrinfo(endpoint->host.c_str(), nullptr, &hints, &found) != 0)
    return false;
  const absl::Cleanup release = [&] { freeaddrinfo(found); };
  std::map<int, int> families;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next)
    if (++families[each->ai_family] > 1) return true;
  return false;
}

std::shared_ptr<grpc::Channel> make_channel(const std::string& address,
                                            const daemon::ClientSecrets& secrets,
                                            bool is_one_of_several) {
  grpc::ChannelArguments arguments = daemon::channel_arguments();
  arguments.SetMaxReceiveMessageSize(daemon::kMessageBytesMax);
  // Reconnects quickly to a restarted coordinator.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // Despite its name this also bounds a single attempt; a refused connection fails immediately
  // anyway. A name may have several addresses, of which each gets a share of the round.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, is_one_of_several ? 1'000 : 5'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  if (is_one_of_several) {
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingIntervalMs);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
    // A stream of a quiet job has no data in either direction.
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  }
  return grpc::CreateCustomChannel(address, daemon::channel_credentials(secrets), arguments);
}

CoordinatorSearch::CoordinatorSearch(std::vector<std::string> addresses,
                                     const daemon::ClientSecrets& secrets) {
  for (std::string& address : addresses) {
    auto channel = make_channel(address, secrets, /*is_one_of_several=*/true);
    candidates_.push_back({std::move(address), std::move(channel)});
  }
}

absl::StatusOr<CoordinatorSearch::Found> CoordinatorSearch::run_round(
    Duration within, const std::function<bool()>& is_stopped) {
  const Instant end = monotonic_now() + std::min(within, kRoundMax);
  while (monotonic_now() < end) {
    if (is_stopped()) return absl::CancelledError("stopped");
    bool is_pending = false;
    for (const Found& candidate : candidates_) {
      const grpc_connectivity_state state = candidate.channel->GetState(/*try_to_connect=*/true);
      if (state == GRPC_CHANNEL_READY) return candidate;
      is_pending |= state != GRPC_CHANNEL_TRANSIENT_FAILURE;
    }
    if (!is_pending) break;
    wait_for_change();
  }
  return absl::UnavailableError("no address answers");
}

void CoordinatorSearch::wait(Duration time) {
  const Instant end = monotonic_now() + time;
  while (monotonic_now() < end) {
    for (const Found& candidate : candidates_)
      if (candidate.channel->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY) return;
    wait_for_change();
  }
}

// Waits for kStatePoll, or for a change of the first channel. Lets gRPC work on all channels.
void CoordinatorSearch::wait_for_change() {
  const auto& first = candidates_.front().channel;
  first->WaitForStateChange(first->GetState(false),
                            daemon::grpc_deadline(monotonic_now() + kStatePoll));
}

grpc::Status CoordinatorSearch::failure() {
  std::optional<grpc::Status> first;
  for (const Found& candidate : candidates_) {
    grpc::ClientContext context;
    context.set_deadline(daemon::grpc_deadline(monotonic_now() + kFailureMax));
    v1::Coordinator answer;
    const grpc::Status status =
        v1::Admin::NewStub(candidate.channel)
            ->GetCoordinator(&context, v1::GetCoordinatorRequest(), &answer);
    if (status.ok()) continue;  // it leads since a moment ago
    const bool is_refused = status.error_message().find("refused") != std::string::npos;
    if (!is_refused) return status;
    if (!first) first = status;
  }
  return first.value_or(
      grpc::Status(grpc::StatusCode::UNAVAILABLE, "a coordinator has begun to lead; try again"));
}

}  // namespace muster::cli
