#include "coordinator/shell/grpc/tokens.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include <absl/strings/str_cat.h>
#include <spdlog/spdlog.h>

#include "common/files/errno_status.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"

namespace muster::coordinator {
namespace {

constexpr std::array kRoles = {Role::kWorker, Role::kViewer, Role::kSubmitter, Role::kAdmin};
constexpr Duration kTokensFreshFor = std::chrono::seconds(1);
constexpr size_t kFileNameShown = 64;

absl::Status check_names(const std::string& folder) {
  std::error_code error;
  std::filesystem::directory_iterator files(folder, error);
  for (; !error && files != std::filesystem::directory_iterator(); files.increment(error)) {
    const std::string name = files->path().filename();
    // Kubernetes' own entries, with which it replaces all files at once.
    if (name.starts_with(".")) continue;
    const bool known =
        std::any_of(kRoles.begin(), kRoles.end(), [&](Role role) { return name_of(role) == name; });
    if (known) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--token-dir=", folder, ": ", printable(name, kFileNameShown),
                     " is no role; its files are worker, viewer, submitter and admin"));
  }
  if (error) return file_status(error.value(), absl::StrCat("--token-dir=", folder));
  return absl::OkStatus();
}

}  // namespace

std::string_view name_of(Role role) {
  switch (role) {
    case Role::kWorker:
      return "worker";
    case Role::kViewer:
      return "viewer";
    case Role::kSubmitter:
      return "submitter";
    case Role::kAdmin:
      return "admin";
  }
  return "?";
}

absl::StatusOr<TokenTable> TokenTable::read(const std::string& folder) {
  if (absl::Status status = check_names(folder); !status.ok()) return status;
  TokenTable table;
  for (const Role role : kRoles) {
    const auto tokens =
        daemon::read_tokens("--token-dir", absl::StrCat(folder, "/", av(name_of(role))));
    if (absl::IsNotFound(tokens.status())) continue;
    if (!tokens.ok()) return tokens.status();
    for (const std::string& token : *tokens) {
      const auto [known, is_new] = table.roles_.emplace(daemon::token_digest(token), role);
      if (is_new || known->second == role) continue;
      return absl::InvalidArgumentError(absl::StrCat("--token-dir=", folder, ": ",
                                                     av(name_of(known->second)), " and ",
                                                     av(name_of(role)), " have a token in common"));
    }
  }
  if (!table.roles_.empty()) return table;
  return absl::InvalidArgumentError(absl::StrCat(
      "--token-dir=", folder,
      ": there are no tokens; its files are worker, viewer, submitter and admin, a token a line"));
}

TokenTable TokenTable::reread(const std::string& folder, const TokenTable& before,
                              absl::Status& trouble) {
  trouble = check_names(folder);
  TokenTable table;
  for (const Role role : kRoles) {
    const auto tokens =
        daemon::read_tokens("--token-dir", absl::StrCat(folder, "/", av(name_of(role))));
    if (absl::IsNotFound(tokens.status())) continue;
    trouble.Update(tokens.status());
    if (!tokens.ok()) {
      for (const auto& [digest, of] : before.roles_)
        if (of == role) table.roles_.emplace(digest, role);
      continue;
    }
    // A token of two roles gets the lower role.
    for (const std::string& token : *tokens)
      table.roles_.emplace(daemon::token_digest(token), role);
  }
  if (table.roles_.empty()) {
    trouble.Update(
        absl::NotFoundError(absl::StrCat("--token-dir=", folder, ": there are no tokens")));
    return before;
  }
  if (trouble.ok()) trouble = read(folder).status();  // reports a token that two roles have
  return table;
}

std::optional<Role> TokenTable::role_of(const daemon::TokenDigest& token) const {
  const auto found = roles_.find(token);
  if (found == roles_.end()) return std::nullopt;
  return found->second;
}

absl::StatusOr<std::unique_ptr<Tokens>> Tokens::open(const std::string& folder) {
  auto table = TokenTable::read(folder);
  if (!table.ok()) return table.status();
  return std::make_unique<Tokens>(folder, *std::move(table), monotonic_now());
}

Tokens::Tokens(std::string folder, TokenTable table, Instant now)
    : folder_(std::move(folder)), table_(std::move(table)), read_at_(now) {}

std::optional<Role> Tokens::role_of(const daemon::TokenDigest& token, Instant now) {
  const std::lock_guard lock(mutex_);
  if (now - read_at_ >= kTokensFreshFor) refresh(now);
  return table_.role_of(token);
}

void Tokens::refresh(Instant now) {
  read_at_ = now;
  absl::Status status;
  TokenTable table = TokenTable::reread(folder_, table_, status);
  const std::string trouble(status.message());
  if (!trouble.empty() && trouble != trouble_)
    spdlog::warn("some tokens are unchanged: {}", trouble);
  if (table != table_) {
    spdlog::info("tokens are read again from {}", folder_);
    table_ = std::move(table);
  }
  trouble_ = trouble;
}

}  // namespace muster::coordinator
