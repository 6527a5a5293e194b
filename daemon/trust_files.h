// Certificates, keys and tokens, validated when they are read.
//
// Errors name the flag, the file and the correct form, and never contain a key or a token.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace muster::daemon {

// Bounds of a token's length: a token of the minimum length cannot be guessed in practice, and the
// maximum, which signed tokens need, fits into the 8 KiB of a call's headers.
constexpr size_t kTokenBytesMin = 16;
constexpr size_t kTokenBytesMax = 6'144;
// The maximum number of tokens in a file. There are two during a rotation, and each member of a
// team may have a token.
constexpr size_t kTokensPerFileMax = 1'000;

// Reads at least one PEM certificate. Returns NotFound or another system error if the file cannot
// be read, InvalidArgument if it holds no certificate.
absl::StatusOr<std::string> read_certificates(std::string_view flag, const std::string& path);

// The time in which a certificate is valid, in Unix time.
struct CertificateValidity {
  int64_t not_before_unix_s = 0;
  int64_t not_after_unix_s = 0;
};
// Returns the validity of the first certificate in `pem`, which read_certificates() has returned.
absl::StatusOr<CertificateValidity> certificate_validity(std::string_view flag,
                                                         const std::string& path,
                                                         const std::string& pem);

struct KeyPair {
  std::string certificate;  // PEM, the complete chain of the file
  std::string key;          // PEM, not encrypted

  bool operator==(const KeyPair&) const = default;
};
// Reads a certificate and its key, the files of the flags `flags`-cert and `flags`-key. Returns
// InvalidArgument, too, if the key belongs to another certificate.
absl::StatusOr<KeyPair> read_key_pair(const std::string& certificate_path,
                                      const std::string& key_path,
                                      std::string_view flags = "--tls");

// One line of a file of tokens.
struct TokenLine {
  std::string token;
  std::string rest;  // the words after the token, without outer spaces
  int number = 0;    // the line's, from 1
};
// Reads the lines of a file of tokens; skips empty lines and lines that begin with #.
absl::StatusOr<std::vector<TokenLine>> read_token_lines(std::string_view flag,
                                                        const std::string& path);

// Reads one token per line; skips empty lines and lines that begin with #. The result may be empty:
// with an empty file, no caller has the file's role.
absl::StatusOr<std::vector<std::string>> read_tokens(std::string_view flag,
                                                     const std::string& path);

// The SHA-256 of a token. Tokens are compared by it, so that the time of a lookup reveals nothing
// about a token, and the memory contains none.
using TokenDigest = std::array<uint8_t, 32>;
TokenDigest token_digest(std::string_view token);

}  // namespace muster::daemon
