#include "coordinator/shell/identity/seen_tokens.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace muster::coordinator {

std::optional<TokenGrant> SeenTokens::find(const daemon::TokenDigest& token) const {
  const auto found = entries_.find(token);
  if (found == entries_.end()) return std::nullopt;
  const auto& [accepted, issuer] = found->second;
  return issuer->still_accepts(accepted.acceptance) ? std::optional(accepted.grant) : std::nullopt;
}

// Persons of two issuers may have the same name.
std::string SeenTokens::group_of(const Entry& entry) const {
  const TokenGrant& grant = entry.accepted.grant;
  if (grant.role == Role::kWorker) return "";
  return absl::StrCat(reinterpret_cast<uintptr_t>(entry.issuer), " ", grant.caller.name);
}

void SeenTokens::remove(const daemon::TokenDigest& token) {
  const auto found = entries_.find(token);
  if (found == entries_.end()) return;
  const auto group = groups_.find(group_of(found->second));
  group->second.erase({found->second.accepted.grant.expires_unix_s, token});
  if (group->second.empty()) groups_.erase(group);
  entries_.erase(found);
}

void SeenTokens::add(const daemon::TokenDigest& token, Entry entry) {
  remove(token);
  const bool is_worker = entry.accepted.grant.role == Role::kWorker;
  const std::string name = group_of(entry);
  if (!is_worker && !groups_.contains(name) && groups_.size() > kPeopleMax) return;
  ByExpiry& group = groups_[name];
  group.emplace(entry.accepted.grant.expires_unix_s, token);
  entries_.emplace(token, std::move(entry));
  if (group.size() > (is_worker ? kWorkersMax : kPerPersonMax)) {
    const daemon::TokenDigest first = group.begin()->second;
    remove(first);
  }
}

}  // namespace muster::coordinator
