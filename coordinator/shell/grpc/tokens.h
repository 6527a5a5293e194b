// Maps bearer tokens to roles and to people.
//
// The folder has a file for each role (`worker`, `viewer`, `submitter`, `admin`) with one token per
// line. During a rotation a file has two lines. A Kubernetes Secret with these keys is such a
// folder. A line may name the token's owner and its limits:
//
//   TOKEN user=alice teams=vision,speech max_priority=100
//
// TOKEN is the token, or `sha256:` and the hexadecimal SHA-256 of the token, so that the file does
// not contain it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "common/time/time.h"
#include "coordinator/core/records/caller.h"
#include "daemon/trust_files.h"

namespace muster::coordinator {

// The text before a token in the header `authorization`.
inline constexpr std::string_view kBearer = "Bearer ";

// From kViewer on, each role includes the preceding ones; a worker's token only opens a worker's
// stream.
enum class Role { kWorker, kViewer, kSubmitter, kAdmin };
std::string_view name_of(Role role);

// The rights of a token.
struct TokenGrant {
  Role role = Role::kWorker;
  Caller caller{};

  friend bool operator==(const TokenGrant&, const TokenGrant&) = default;
};

// The folder's content.
class TokenTable {
 public:
  // Reads the folder. Errors name the file and the problem.
  static absl::StatusOr<TokenTable> read(const std::string& folder);

  // Reads the folder again. A role whose file cannot be read retains the tokens of `before`. All
  // other roles get the tokens of their files, so that a mistake in one file does not leave a
  // revoked token of another file valid. `trouble` receives the error.
  static TokenTable reread(const std::string& folder, const TokenTable& before,
                           absl::Status& trouble);

  std::optional<TokenGrant> grant_of(const daemon::TokenDigest& token) const;
  bool operator==(const TokenTable&) const = default;

 private:
  std::map<daemon::TokenDigest, TokenGrant> grants_;
};

// The folder's current content. Thread-safe.
class Tokens {
 public:
  // Reads the folder for the first time.
  static absl::StatusOr<std::unique_ptr<Tokens>> open(const std::string& folder);
  Tokens(std::string folder, TokenTable table, Instant now);

  // Returns what the token permits; nullopt if the token is not known. Reads the folder again at
  // most once per second. Logs an invalid folder and retains the previous tokens of an unreadable
  // role, because a mistake during a rotation must not lock everyone out.
  std::optional<TokenGrant> grant_of(const daemon::TokenDigest& token, Instant now);
  std::optional<TokenGrant> grant_of(std::string_view token, Instant now) {
    return grant_of(daemon::token_digest(token), now);
  }

 private:
  void refresh(Instant now);

  const std::string folder_;
  std::mutex mutex_;
  TokenTable table_;
  Instant read_at_;
  std::string trouble_;
};

}  // namespace muster::coordinator
