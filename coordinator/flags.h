// The command line of muster-coordinator.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "common/time/time.h"
#include "coordinator/shell/candidacy.h"
#include "coordinator/shell/server.h"

namespace muster::coordinator {

inline int64_t to_milliseconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

struct Flags {
  ServerOptions server;
  std::string port_file;
  // One of several coordinators; without endpoints it is the only one.
  CandidacyOptions candidacy;
  bool move_state_to_etcd = false;
  bool leave_etcd = false;
  bool die_with_parent = false;
  bool ignore_sigterm = false;
  int64_t worker_lease_ms = to_milliseconds(CoreOptions{}.worker_lease);
  int64_t heartbeat_interval_ms = to_milliseconds(CoreOptions{}.heartbeat_interval);
  int64_t unreachable_ms = to_milliseconds(CoreOptions{}.unreachable_after);
  int64_t overload_lag_ms = to_milliseconds(kOverloadLag);
  std::string log_level = "info";
  std::string log_format = "text";
};

// Declares the flags, which a later parse() writes to `flags`. Requires that `flags` outlives
// `app`.
void declare_flags(CLI::App& app, Flags& flags);

}  // namespace muster::coordinator
