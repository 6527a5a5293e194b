// Maps bearer tokens to roles.
//
// The folder has a file for each role (`worker`, `viewer`, `submitter`, `admin`) with one token per
// line: two lines during a rotation. A Kubernetes Secret with these keys is such a folder.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "common/time.h"

namespace muster::coordinator {

// From kViewer on, each role includes the preceding ones; a worker's token only opens a worker's
// stream.
enum class Role { kWorker, kViewer, kSubmitter, kAdmin };
std::string_view name_of(Role role);

// The folder's content. Stores tokens as digests, so that look-ups leak nothing by their time and
// memory reveals no token.
class TokenTable {
 public:
  // Errors name the file and what is wrong with it.
  static absl::StatusOr<TokenTable> read(const std::string& folder);

  // Reads the folder again. A role whose file cannot be read keeps the tokens of `before`; all
  // others follow their files, so that a mistake in one file does not keep another file's revoked
  // token valid. `trouble` receives the error.
  static TokenTable reread(const std::string& folder, const TokenTable& before,
                           absl::Status& trouble);

  std::optional<Role> role_of(std::string_view token) const;
  bool operator==(const TokenTable&) const = default;

 private:
  using Digest = std::array<uint8_t, 32>;
  static Digest digest_of(std::string_view token);

  std::map<Digest, Role> roles_;
};

// The folder's current content. Thread-safe.
class Tokens {
 public:
  // Reads the folder for the first time.
  static absl::StatusOr<std::unique_ptr<Tokens>> open(const std::string& folder);
  Tokens(std::string folder, TokenTable table, Instant now);

  // Reads the folder again at most once per second. Logs an invalid folder and keeps the previous
  // tokens of an unreadable role: a mistake in a rotation must not lock everyone out.
  std::optional<Role> role_of(std::string_view token, Instant now);

 private:
  void refresh(Instant now);

  const std::string folder_;
  std::mutex mutex_;
  TokenTable table_;
  Instant read_at_;
  std::string trouble_;
};

}  // namespace muster::coordinator
