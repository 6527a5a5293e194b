// What a program that connects to a coordinator is given to be sure of it, and to be known there: a worker, or a command.
#pragma once

#include <string>

#include <absl/status/status.h>

namespace muster::daemon {

// Paths, as on the command line. Without `tls_ca` the connection is open to whoever shares the network.
struct ClientTrust {
  std::string tls_ca;      // certificates of who signs the coordinator's
  std::string tls_cert;    // this program's own, where the coordinator wants one
  std::string tls_key;     // its key
  std::string token_file;  // its first line is sent with each call

  bool has_tls() const { return !tls_ca.empty(); }
};

// InvalidArgument when the flags contradict each other. Reads no file.
absl::Status check_flags(const ClientTrust& trust);

}  // namespace muster::daemon
