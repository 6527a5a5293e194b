// Files that trust is made of: certificates, keys and tokens, each judged when it is read.
//
// Errors name the flag, the file and what would be right, and never what is in a key or a token.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace muster::daemon {

// Guessing one takes longer than anyone has; and a header has room for it.
constexpr size_t kTokenBytesMin = 16;
constexpr size_t kTokenBytesMax = 512;
// While a token is being changed there are two; a team's people may have one each.
constexpr size_t kTokensPerFileMax = 1'000;

// Certificates in PEM, at least one. NotFound or another code of the system's when the file cannot be read, InvalidArgument when
// it is none.
absl::StatusOr<std::string> read_certificates(std::string_view flag, const std::string& path);

struct KeyPair {
  std::string certificate;  // PEM, the chain as it is in the file
  std::string key;          // PEM, not encrypted

  bool operator==(const KeyPair&) const = default;
};
// InvalidArgument also when the key is another certificate's.
absl::StatusOr<KeyPair> read_key_pair(const std::string& certificate_path,
                                      const std::string& key_path);

// One token a line; lines that are empty or begin with # are none. There may be none at all: whoever wants that nobody has this role empties its file.
absl::StatusOr<std::vector<std::string>> read_tokens(std::string_view flag,
                                                     const std::string& path);

}  // namespace muster::daemon
