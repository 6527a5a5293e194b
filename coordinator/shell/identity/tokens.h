// Maps bearer tokens to roles and to people.
//
// The folder has a file for each role (`worker`, `viewer`, `submitter`, `admin`) with one token per
// line. During a rotation a file has two lines. A Kubernetes Secret with these keys is such a
// folder. A line may name the token's owner and its limits:
//
//   TOKEN user=alice teams=vision,speech max_priority=100 expires=2026-12-31T18:00:00Z
//
// and a line of `worker` the nodes as which a worker may register: nodes=gpu-*,cpu1. TOKEN is the
// token, or `sha256:` and the hexadecimal SHA-256 of the token, so that the file does not contain
// it.
//
// Beside the folder, or instead of it, issuers may sign tokens (oidc_issuer.h).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "common/time/time.h"
#include "coordinator/shell/identity/oidc_issuer.h"
#include "coordinator/shell/identity/seen_tokens.h"
#include "coordinator/shell/identity/token_grant.h"
#include "daemon/trust_files.h"

namespace muster::coordinator {

// The text before a token in the header `authorization`.
inline constexpr std::string_view kBearer = "Bearer ";

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

using OidcIssuers = std::vector<std::unique_ptr<OidcIssuer>>;

// The folder's current content, and the issuers' tokens. Thread-safe.
class Tokens {
 public:
  // Reads the folder for the first time. `folder`: "": there is none.
  static absl::StatusOr<std::unique_ptr<Tokens>> open(const std::string& folder,
                                                      OidcIssuers issuers = {});
  Tokens(std::string folder, TokenTable table, OidcIssuers issuers, Instant now);

  // Returns what the token permits; Unauthenticated, with the reason, if nothing. Reads the folder
  // again at most once per second. Logs an invalid folder and retains the previous tokens of an
  // unreadable role, because a mistake during a rotation must not lock everyone out.
  absl::StatusOr<TokenGrant> grant_of(std::string_view token, Instant now);
  // The same for a token that was seen before: signed tokens are remembered until they expire, or
  // their issuer withdraws the key.
  std::optional<TokenGrant> grant_of(const daemon::TokenDigest& token, Instant now);

 private:
  void refresh(Instant now);
  std::optional<TokenGrant> find_locked(const daemon::TokenDigest& token, Instant now);

  const std::string folder_;
  const OidcIssuers issuers_;
  std::mutex mutex_;
  TokenTable table_;
  Instant read_at_;
  std::string trouble_;
  SeenTokens seen_;
};

}  // namespace muster::coordinator
