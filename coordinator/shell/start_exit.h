// The exit codes of a coordinator that cannot start, by which supervisors decide whether a restart
// can help. docs/recovery.md lists them.
#pragma once

#include <absl/status/status.h>

namespace muster::coordinator {

enum class StartExit {
  kFlag = 2,          // a flag, or a folder or file that a flag names, is wrong
  kLock = 10,         // another coordinator uses the state directory
  kPort = 11,         // a port is in use, or its address does not exist here
  kNoSpace = 12,      // no space for the state
  kState = 13,        // the state is damaged, or of a newer version
  kCertificate = 14,  // the certificate, its key, an authority or the tokens cannot be used
  kStore = 15,        // etcd refuses the requests
  kDeposed = 16       // another coordinator leads or may lead: also while running
};

// Returns the exit code of a start that fails because of the state.
StartExit exit_of_state(const absl::Status& status);
// Returns the error with this exit code attached.
absl::Status exits_as(StartExit exit, absl::Status status);
// Returns the exit code for an error of Server::start(); kFlag if none is attached.
int exit_code_of_start(const absl::Status& status);

}  // namespace muster::coordinator
