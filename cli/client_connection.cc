// The connection to the coordinator, and the choice of one of several coordinators.
#include <algorithm>
#include <chrono>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <grpcpp/grpcpp.h>

#include "cli/client.h"
#include "cli/terminal/terminal.h"
#include "common/time/time.h"
#include "daemon/grpc_deadline.h"

namespace muster::cli {
namespace {

// The time limit of wait_for_connection().
constexpr Duration kConnectionWait = std::chrono::seconds(1);

}  // namespace

Client::Client(CoordinatorTarget coordinator)
    : coordinator_(std::move(coordinator)), addresses_(absl::StrSplit(coordinator_.address, ',')) {}

absl::StatusOr<std::shared_ptr<Client::Connection>> Client::connection(Duration patience) {
  auto secrets = daemon::read_secrets(coordinator_.trust);
  if (!secrets.ok()) return secrets.status();
  if (addresses_.size() == 1) return only_connection(*secrets);
  {
    const std::lock_guard lock(mutex_);
    if (connection_ != nullptr && connection_->secrets == *secrets &&
        connection_->channel->GetState(false) == GRPC_CHANNEL_READY)
      return connection_;
  }
  const auto found = find_leader(*secrets, patience);
  if (!found.ok()) return found.status();
  const std::lock_guard lock(mutex_);
  return use(*secrets, *found);
}

std::shared_ptr<Client::Connection> Client::only_connection(const daemon::ClientSecrets& secrets) {
  const std::lock_guard lock(mutex_);
  if (connection_ != nullptr && connection_->secrets == secrets) return connection_;
  const std::string& address = addresses_.front();
  return use(secrets, {address, make_channel(address, secrets, names_several(address))});
}

std::shared_ptr<Client::Connection> Client::use(const daemon::ClientSecrets& secrets,
                                                const CoordinatorSearch::Found& found) {
  connection_ = std::make_shared<Connection>(found.address, secrets, found.channel,
                                             v1::Muster::NewStub(found.channel),
                                             v1::Admin::NewStub(found.channel));
  return connection_;
}

absl::StatusOr<CoordinatorSearch::Found> Client::find_leader(const daemon::ClientSecrets& secrets,
                                                             Duration patience) {
  const Instant give_up = monotonic_now() + patience;
  CoordinatorSearch search(addresses_, secrets);
  while (true) {
    auto found = search.run_round(std::max<Duration>(give_up - monotonic_now(), Duration::zero()),
                                  [this] { return is_stopped(); });
    if (!absl::IsUnavailable(found.status())) return found;
    if (monotonic_now() >= give_up) return translate(search.failure());
    // A caller with less patience reports the loss itself.
    if (patience >= kLeaderPatience && !is_search_noted_.exchange(true))
      note(absl::StrCat(translate(search.failure()).message(), "; trying again for up to ",
                        to_seconds(patience), " s"));
    search.wait(kReconnectPause);
  }
}

absl::StatusOr<std::string> Client::address() {
  const auto to = connection();
  if (!to.ok()) return to.status();
  return (*to)->address;
}

void Client::forget(const Connection& connection) {
  const std::lock_guard lock(mutex_);
  if (addresses_.size() > 1 && connection_.get() == &connection) connection_ = nullptr;
}

bool Client::wait_for_connection() {
  const auto to = connection(kConnectionWait);
  if (absl::IsUnavailable(to.status())) return false;
  if (to.ok()) {
    return (*to)->channel->WaitForConnected(
        daemon::grpc_deadline(monotonic_now() + kConnectionWait));
  }
  pause_before_reconnection();  // the credential files may be half renewed
  return false;
}

}  // namespace muster::cli
