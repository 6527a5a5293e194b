// Maps bearer tokens to roles.
//
// The folder has a file for each role (`worker`, `viewer`, `submitter`, `admin`) with one token per
// line. During a rotation a file has two lines. A Kubernetes Secret with these keys is such a
// folder.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "common/time/time.h"
#include "daemon/trust_files.h"

namespace muster::coordinator {

// From kViewer on, each role includes the preceding ones; a worker's token only opens a worker's
// stream.
enum class Role { kWorker, kViewer, kSubmitter, kAdmin };
std::string_view name_of(Role role);

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

  std::optional<Role> role_of(const daemon::TokenDigest& token) const;
  bool operator==(const TokenTable&) const = default;

 private:
  std::map<daemon::TokenDigest, Role> roles_;
};

// The folder's current content. Thread-safe.
class Tokens {
 public:
  // Reads the folder for the first time.
  static absl::StatusOr<std::unique_ptr<Tokens>> open(const std::string& folder);
  Tokens(std::string folder, TokenTable table, Instant now);

  // Returns the role of the token; nullopt if the token is not known. Reads the folder again at
  // most once per second. Logs an invalid folder and retains the previous tokens of an unreadable
  // role, because a mistake during a rotation must not lock everyone out.
  std::optional<Role> role_of(const daemon::TokenDigest& token, Instant now);
  std::optional<Role> role_of(std::string_view token, Instant now) {
    return role_of(daemon::token_digest(token), now);
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
