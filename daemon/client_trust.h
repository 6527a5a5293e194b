// The files that a client of the coordinator (a worker or a command) uses to verify the coordinator
// and to authenticate itself.
#pragma once

#include <string>

#include <absl/status/status.h>

namespace muster::daemon {

// Paths from the command line. Without `tls_ca` the connection is unencrypted.
struct ClientTrust {
  std::string tls_ca;      // authorities that sign the coordinator's certificate
  std::string tls_cert;    // this program's certificate, if the coordinator requires one
  std::string tls_key;     // the key of `tls_cert`
  std::string token_file;  // file whose first line is sent with each call

  bool has_tls() const { return !tls_ca.empty(); }
};

// Returns InvalidArgument if the flags contradict each other. Reads no file.
absl::Status check_flags(const ClientTrust& trust);

}  // namespace muster::daemon
