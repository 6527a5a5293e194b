// A file that the coordinator sends. It replaces another one only when it is complete.
#pragma once

#include <openssl/evp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <absl/status/status.h>

#include "muster/v1/admin.pb.h"

namespace muster::cli {

// Used by one thread. The destructor removes what is not complete.
class ReceivedFile {
 public:
  explicit ReceivedFile(std::string path);
  ~ReceivedFile();
  ReceivedFile(const ReceivedFile&) = delete;
  ReceivedFile& operator=(const ReceivedFile&) = delete;

  // Receives a stream by `call`, which calls its argument for each chunk until that returns false,
  // and gives the file its name. Errors name the file, or are those of the call.
  absl::Status receive(
      const std::function<absl::Status(const std::function<bool(const v1::FileChunk&)>&)>& call);

  uint64_t bytes() const { return bytes_; }
  std::string sha256() const;

 private:
  struct FreeDigest {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };

  absl::Status take(const v1::FileChunk& chunk);
  absl::Status complete();

  const std::string path_;
  const std::string partial_;
  std::unique_ptr<EVP_MD_CTX, FreeDigest> digest_{EVP_MD_CTX_new()};
  int fd_ = -1;  // owned
  uint64_t bytes_ = 0;
  uint64_t expected_bytes_ = 0;
  std::string expected_sha256_;
  std::string sha256_;
};

}  // namespace muster::cli
