// Who a bearer token makes its sender.
//
// A folder has a file for each role (`worker`, `viewer`, `submitter`, `admin`), a token a line: two lines while one is being
// replaced. A Kubernetes Secret with these keys is such a folder.
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

// From kViewer on each may do what the ones before it may; a worker's token opens a worker's stream alone.
enum class Role { kWorker, kViewer, kSubmitter, kAdmin };
std::string_view name_of(Role role);

// What the folder held. Tokens are kept as digests: looking one up tells nothing by its time, and memory gives none away.
class TokenTable {
 public:
  // The error names the file and what is wrong with it.
  static absl::StatusOr<TokenTable> read(const std::string& folder);

  // The folder again. A role whose file cannot be read has the tokens of `before`; all others are as their files say, so that a mistake in one file
  // keeps no token of another alive. `trouble`: what is wrong.
  static TokenTable reread(const std::string& folder, const TokenTable& before,
                           absl::Status& trouble);

  std::optional<Role> role_of(std::string_view token) const;
  bool operator==(const TokenTable&) const = default;

 private:
  using Digest = std::array<uint8_t, 32>;
  static Digest digest_of(std::string_view token);

  std::map<Digest, Role> roles_;
};

// The folder as it is now. Any thread.
class Tokens {
 public:
  // Reads it for the first time.
  static absl::StatusOr<std::unique_ptr<Tokens>> open(const std::string& folder);
  Tokens(std::string folder, TokenTable table, Instant now);

  // Reads it again when the last time is a second ago. A folder that has become wrong is told in the log, and a role of which nothing can be read
  // is as before: a mistake in a rotation must not lock everyone out.
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
