// The coordinator's state of a worker: a value without behaviour, rebuilt from registrations.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/job/gpu.h"
#include "common/job/ids.h"
#include "common/job/node_labels.h"
#include "common/process/port_range.h"
#include "common/time/time.h"
#include "coordinator/core/records/node_place.h"
#include "coordinator/core/records/node_record.h"

namespace muster::coordinator {

// Names one rank of one attempt.
struct RankId {
  JobId job;
  Attempt attempt;
  Rank rank;

  friend auto operator<=>(const RankId&, const RankId&) = default;
};

struct Worker {
  WorkerName name;
  Incarnation incarnation;
  std::string host;
  std::string version;
  std::string rendezvous_address;
  std::vector<std::string> addresses;  // the addresses of its node: "10.0.0.2"
  PortRange program_ports;
  NodePlace place;
  NodeLabels labels;
  std::vector<Gpu> gpus;
  // A clause that explains why the node has no GPUs, if the worker has determined the cause.
  std::string no_gpus_because;
  int32_t slots = 0;
  bool connected = false;
  // The worker is shutting down, so no rank is placed on it.
  bool leaving = false;
  // The time at which the worker's newest message arrived.
  Instant last_message{};
  // Extensions of the lease since the worker's newest message, because a message of it is unread
  // (Fleet::postpone).
  int32_t postponements = 0;
  // The number of times that the lease has started again after an outage (Fleet::end_outage) since
  // the worker's newest message.
  int32_t renewals = 0;

  // Ranks that belong to no current attempt. They were ordered to stop, and occupy slots until they
  // end.
  std::set<RankId> orphans;
  // The time at which the orphans were ordered to stop. Set only if the worker was connected at
  // some time since.
  std::optional<Instant> orphans_since;
  // The orphans that SIGKILL does not end. No rank is placed on the worker before they end.
  std::set<RankId> stuck;
  // Ranks that are placed on the worker but absent from its last registration. After
  // kHeartbeatsBeforeVerdict heartbeats, those that the worker has not reported since are started
  // again or count as lost (Core::judge_missing).
  std::set<RankId> missing;
  // Heartbeats since the last registration; counts to kHeartbeatsBeforeVerdict.
  int32_t heartbeats = 0;

  Instant last_heartbeat{};
  // The longest recent time between two heartbeats. Remembered, because a loaded node is usually
  // late more than once.
  Duration longest_pause{};
  // The time at which the worker's stream broke.
  std::optional<Instant> disconnected_at;
  // The worker's ranks were declared lost. No rank is placed on it before its next message.
  bool given_up = false;
  NodeCheckState check;
};

}  // namespace muster::coordinator
