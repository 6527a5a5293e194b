// Channels to the coordinator, and the search for the one of several coordinators that answers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include "common/time/time.h"
#include "daemon/client_credentials.h"

namespace muster::cli {

// Returns whether the host of "host:port" is a name with several addresses of one family, which are
// those of several coordinators. Blocks until the name is resolved.
bool names_several(const std::string& address);

// Returns a channel to the address. `is_one_of_several`: the channel has a connection of its own,
// which a coordinator that stands still loses within seconds, so that another one is searched.
std::shared_ptr<grpc::Channel> make_channel(const std::string& address,
                                            const daemon::ClientSecrets& secrets,
                                            bool is_one_of_several);

// Finds the coordinator that leads: only that one listens. Connects to all addresses at the same
// time, so addresses that do not answer cost no time. A connection counts once the coordinator has
// answered on it, so one that is stopped is not chosen although its host accepts connections.
class CoordinatorSearch {
 public:
  CoordinatorSearch(std::vector<std::string> addresses, const daemon::ClientSecrets& secrets);

  struct Found {
    std::string address;
    std::shared_ptr<grpc::Channel> channel;
  };
  // Blocks until an address answers, each one has failed, or `within` or the time limit of a round
  // is over. Returns the first that answers; Unavailable if there is none; Cancelled once
  // `is_stopped` returns true.
  absl::StatusOr<Found> run_round(Duration within, const std::function<bool()>& is_stopped);
  // Waits after a failed round, and connects meanwhile. gRPC makes progress with a connection only
  // while a thread waits for one; otherwise once in five seconds.
  void wait(Duration time);
  // Returns the error of a call after a failed round. Prefers an address that did not refuse the
  // connection, as coordinators that do not lead refuse it.
  grpc::Status failure();

 private:
  void wait_for_change();

  std::vector<Found> candidates_;
};

}  // namespace muster::cli
