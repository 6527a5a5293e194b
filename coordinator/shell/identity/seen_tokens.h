// The signed tokens that were accepted: streams are checked against them by the digest of their
// token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "coordinator/shell/identity/oidc_issuer.h"
#include "daemon/trust_files.h"

namespace muster::coordinator {

// Not thread-safe.
class SeenTokens {
 public:
  // A person has a few tokens at a time. Further ones replace the person's own, so that no one can
  // displace the tokens of others.
  static constexpr size_t kPerPersonMax = 32;
  // Workers may share a name: a token for each of a large fleet's.
  static constexpr size_t kWorkersMax = 50'000;
  static constexpr size_t kPeopleMax = 50'000;

  struct Entry {
    OidcIssuer::Accepted accepted;
    const OidcIssuer* issuer = nullptr;
  };

  // Returns the grant of a token that was added, unless its issuer no longer accepts it.
  std::optional<TokenGrant> find(const daemon::TokenDigest& token) const;
  void add(const daemon::TokenDigest& token, Entry entry);

 private:
  // The tokens of one kind of caller, of which there are at most so many: the next ones replace
  // those that expire first.
  using ByExpiry = std::set<std::pair<int64_t, daemon::TokenDigest>>;

  void remove(const daemon::TokenDigest& token);
  std::string group_of(const Entry& entry) const;

  std::map<daemon::TokenDigest, Entry> entries_;
  std::map<std::string, ByExpiry> groups_;  // by group_of(): a person, or all workers
};

}  // namespace muster::coordinator
