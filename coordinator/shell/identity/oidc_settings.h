// The file of --oidc: which issuer's tokens are accepted, and what their claims permit.
//
//   {
//     "issuer": "https://sso.example.com/realms/ml",
//     "audience": "muster",
//     "user_claim": "preferred_username",
//     "roles": {"ml-users": "submitter", "ml-admins": "admin"},
//     "teams": {"grp-vision": "vision"}
//   }
//
// docs/trust.md describes all keys.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "coordinator/shell/identity/token_grant.h"

namespace muster::coordinator {

struct OidcSettings {
  std::string issuer{};                  // the claim `iss`, and where the keys are found
  std::vector<std::string> audiences{};  // the token needs one of them in `aud`
  std::string jwks_uri{};                // "": that of the issuer's discovery document
  std::string authorities{};             // PEM of --oidc's ca_file; "": those of the system
  // "": none; a file with the bearer token that the issuer's own documents require
  std::string token_file{};
  std::string user_claim = "sub";       // its value is the person
  std::string user_domain{};            // "": none; the part after @ that names must have, and lose
  std::string groups_claim = "groups";  // its values are groups
  std::vector<std::string> denied_users{};  // people whose tokens are refused
  // By group; a token has the highest role of its groups, or that of "*" if they have none.
  std::map<std::string, Role> roles{};
  std::map<std::string, std::string> teams{};   // by group
  std::map<std::string, int32_t> priorities{};  // by group: the highest priority of its jobs
  std::map<std::string, std::vector<std::string>> nodes{};  // by group: as in TokenGrant

  friend bool operator==(const OidcSettings&, const OidcSettings&) = default;
};

// Reads the file. Returns InvalidArgument with the file, the key, its value and the right form.
absl::StatusOr<OidcSettings> read_oidc_settings(const std::string& path);

// Returns what a token with these claims permits at that Unix time. Returns Unauthenticated, with
// the reason, if the claims do not concern this coordinator, are not valid at that time, or give no
// role. Clocks may differ by 30 s. Requires that the issuer has signed the claims.
absl::StatusOr<TokenGrant> grant_of_claims(const OidcSettings& settings,
                                           const nlohmann::json& claims, int64_t unix_s);

}  // namespace muster::coordinator
