// The certificate of a TLS server, read again when its files change.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include <absl/status/statusor.h>
#include <boost/asio/ssl/context.hpp>

#include "common/time/time.h"
#include "daemon/trust_files.h"

namespace muster::daemon {

struct TlsPaths {
  std::string certificate;
  std::string key;
  std::string client_ca = {};  // if set, each client needs a certificate signed by one of these
};

// Thread-safe.
class TlsFiles {
 public:
  // Reads the files for the first time. Errors name the flag and the file.
  static absl::StatusOr<std::shared_ptr<TlsFiles>> open(TlsPaths paths);

  // Returns the context for a new connection. Reads the files again at most every five seconds, and
  // retains the previous ones if they cannot be read.
  std::shared_ptr<boost::asio::ssl::context> context(Instant now);

 private:
  explicit TlsFiles(TlsPaths paths) : paths_(std::move(paths)) {}
  absl::Status read();

  const TlsPaths paths_;
  std::mutex mutex_;
  KeyPair pair_;
  std::string client_ca_;
  Instant read_at_{};
  std::string trouble_;
  std::shared_ptr<boost::asio::ssl::context> context_;
};

}  // namespace muster::daemon
