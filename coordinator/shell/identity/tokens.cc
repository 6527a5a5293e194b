#include "coordinator/shell/identity/tokens.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <absl/time/time.h>
#include <spdlog/spdlog.h>

#include "common/files/errno_status.h"
#include "common/job/limits.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"

namespace muster::coordinator {
namespace {

constexpr std::array kRoles = {Role::kWorker, Role::kViewer, Role::kSubmitter, Role::kAdmin};
constexpr Duration kTokensFreshFor = std::chrono::seconds(1);
constexpr size_t kFileNameShown = 64;
constexpr absl::string_view kDigestPrefix = "sha256:";
constexpr size_t kIssuerShown = 128;

int64_t unix_seconds() { return wall_clock_unix_ns() / 1'000'000'000; }

bool has_expired(const TokenGrant& grant) {
  return grant.expires_unix_s != 0 && unix_seconds() >= grant.expires_unix_s;
}

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

bool is_name(absl::string_view text) { return is_person_or_team(sv(text)); }

// Reads one word after a token. Returns a clause about the problem, "" if there is none.
std::string take_word(absl::string_view word, TokenGrant& grant) {
  Caller& caller = grant.caller;
  const bool is_worker = grant.role == Role::kWorker;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(word, absl::MaxSplits('=', 1));
  const auto& [key, value] = parts;
  if (key == "expires") {
    absl::Time time;
    std::string problem;
    if (!absl::ParseTime(absl::RFC3339_full, value, &time, &problem))
      return "expires must be a time such as 2026-12-31T18:00:00Z";
    grant.expires_unix_s = std::max<int64_t>(1, absl::ToUnixSeconds(time));
    return "";
  }
  if (key == "nodes" && is_worker) {
    grant.nodes = absl::StrSplit(value, ',');
    if (std::ranges::all_of(grant.nodes, is_name)) return "";
    return "nodes must be patterns of names separated by commas, such as gpu-*,cpu1";
  }
  if (is_worker) return "only nodes=PATTERN,PATTERN and expires=TIME may follow a worker's token";
  if (key == "user") {
    caller.name = std::string(value);
    if (is_name(value)) return "";
    return absl::StrCat("user must have 1 to ", kNameBytesMax, " visible characters, no comma");
  }
  if (key == "teams") {
    caller.teams = absl::StrSplit(value, ',');
    if (std::ranges::all_of(caller.teams, is_name)) return "";
    return "teams must be names separated by commas";
  }
  if (key == "max_priority") {
    const bool is_valid = absl::SimpleAtoi(value, &caller.priority_max) &&
                          std::abs(int64_t{caller.priority_max}) <= kPriorityMax;
    if (is_valid) return "";
    return absl::StrCat("max_priority must be a number between -", kPriorityMax, " and ",
                        kPriorityMax);
  }
  // The word may be a token, so it is not shown.
  return "only user=NAME, teams=NAME,NAME, max_priority=N and expires=TIME may follow a token";
}

absl::StatusOr<TokenGrant> grant_of_line(const daemon::TokenLine& line, Role role,
                                         const std::string& file) {
  TokenGrant grant{.role = role, .caller = {.is_admin = role == Role::kAdmin}};
  const auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": line ", line.number, ": ", why));
  };
  for (const absl::string_view word :
       absl::StrSplit(line.rest, absl::ByAnyChar(" \t"), absl::SkipEmpty()))
    if (const std::string why = take_word(word, grant); !why.empty()) return refuse(why);
  if (grant.caller.name.empty() && !grant.caller.teams.empty())
    return refuse("teams need user=NAME: members of a team are people");
  return grant;
}

// The digest of a token, which the line may give in its place.
absl::StatusOr<daemon::TokenDigest> digest_of_line(const daemon::TokenLine& line,
                                                   const std::string& file) {
  absl::string_view hex = line.token;
  if (!absl::ConsumePrefix(&hex, kDigestPrefix)) return daemon::token_digest(line.token);
  daemon::TokenDigest digest{};
  const bool is_valid = hex.size() == 2 * digest.size() && std::ranges::all_of(hex, [](char c) {
                          return absl::ascii_isxdigit(static_cast<unsigned char>(c));
                        });
  if (!is_valid)
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": line ", line.number, ": after ", kDigestPrefix, " there must be ",
                     2 * digest.size(), " hexadecimal digits, the SHA-256 of the token"));
  const std::string bytes = absl::HexStringToBytes(hex);
  std::ranges::copy(bytes, digest.begin());
  return digest;
}

using Grants = std::vector<std::pair<daemon::TokenDigest, TokenGrant>>;

// Reads the file of a role. Returns NotFound if there is none.
absl::StatusOr<Grants> read_role(const std::string& folder, Role role) {
  const std::string path = absl::StrCat(folder, "/", av(name_of(role)));
  const auto lines = daemon::read_token_lines("--token-dir", path);
  if (!lines.ok()) return lines.status();
  const std::string file = absl::StrCat("--token-dir=", path);
  Grants grants;
  for (const daemon::TokenLine& line : *lines) {
    auto grant = grant_of_line(line, role, file);
    if (!grant.ok()) return grant.status();
    const auto digest = digest_of_line(line, file);
    if (!digest.ok()) return digest.status();
    grants.emplace_back(*digest, *std::move(grant));
  }
  return grants;
}

}  // namespace

bool is_person_or_team(std::string_view text) {
  return !text.empty() && text.size() <= kNameBytesMax && std::ranges::all_of(text, [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != ',';
  });
}

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
    auto grants = read_role(folder, role);
    if (absl::IsNotFound(grants.status())) continue;
    if (!grants.ok()) return grants.status();
    for (auto& [digest, grant] : *grants) {
      const auto [known, is_new] = table.grants_.emplace(digest, grant);
      if (is_new || known->second == grant) continue;
      if (known->second.role == role)
        return absl::InvalidArgumentError(absl::StrCat(
            "--token-dir=", folder, "/", av(name_of(role)), ": two lines have a token in common"));
      return absl::InvalidArgumentError(absl::StrCat("--token-dir=", folder, ": ",
                                                     av(name_of(known->second.role)), " and ",
                                                     av(name_of(role)), " have a token in common"));
    }
  }
  if (!table.grants_.empty()) return table;
  return absl::InvalidArgumentError(absl::StrCat(
      "--token-dir=", folder,
      ": there are no tokens; its files are worker, viewer, submitter and admin, a token a line"));
}

TokenTable TokenTable::reread(const std::string& folder, const TokenTable& before,
                              absl::Status& trouble) {
  trouble = check_names(folder);
  TokenTable table;
  for (const Role role : kRoles) {
    auto grants = read_role(folder, role);
    if (absl::IsNotFound(grants.status())) continue;
    trouble.Update(grants.status());
    if (!grants.ok()) {
      for (const auto& [digest, grant] : before.grants_)
        if (grant.role == role) table.grants_.emplace(digest, grant);
      continue;
    }
    // A token of two roles gets the lower role.
    for (auto& [digest, grant] : *grants) table.grants_.emplace(digest, std::move(grant));
  }
  if (table.grants_.empty()) {
    trouble.Update(
        absl::NotFoundError(absl::StrCat("--token-dir=", folder, ": there are no tokens")));
    return before;
  }
  if (trouble.ok()) trouble = read(folder).status();  // reports a token that two roles have
  return table;
}

std::optional<TokenGrant> TokenTable::grant_of(const daemon::TokenDigest& token) const {
  const auto found = grants_.find(token);
  if (found == grants_.end()) return std::nullopt;
  return found->second;
}

absl::StatusOr<std::unique_ptr<Tokens>> Tokens::open(const std::string& folder,
                                                     OidcIssuers issuers) {
  if (folder.empty())
    return std::make_unique<Tokens>(folder, TokenTable(), std::move(issuers), monotonic_now());
  auto table = TokenTable::read(folder);
  if (!table.ok()) return table.status();
  return std::make_unique<Tokens>(folder, *std::move(table), std::move(issuers), monotonic_now());
}

Tokens::Tokens(std::string folder, TokenTable table, OidcIssuers issuers, Instant now)
    : folder_(std::move(folder)),
      issuers_(std::move(issuers)),
      table_(std::move(table)),
      read_at_(now) {}

absl::StatusOr<TokenGrant> Tokens::grant_of(std::string_view token, Instant now) {
  const daemon::TokenDigest digest = daemon::token_digest(token);
  {
    const std::lock_guard lock(mutex_);
    const auto grant = find_locked(digest, now);
    if (grant && !has_expired(*grant)) return *grant;
    if (grant) return absl::UnauthenticatedError("the token has expired: get a new one");
  }
  if (issuers_.empty() || !is_signed_token(token))
    return absl::UnauthenticatedError(
        "the coordinator has no such token: is the file of --token-file out of date?");
  // The name is not verified yet; it only selects who verifies the token.
  const std::string name = unverified_issuer(token);
  const auto issuer = std::ranges::find_if(
      issuers_, [&](const std::unique_ptr<OidcIssuer>& one) { return one->name() == name; });
  if (issuer == issuers_.end())
    return absl::UnauthenticatedError(
        absl::StrCat("the token is refused: its issuer is ", printable(name, kIssuerShown),
                     issuers_.size() == 1 ? absl::StrCat(", not ", issuers_.front()->name())
                                          : ", which no file of --oidc has"));
  auto accepted = (*issuer)->grant_of(token, unix_seconds());
  if (!accepted.ok()) return accepted.status();
  const TokenGrant grant = accepted->grant;
  const std::lock_guard lock(mutex_);
  seen_.add(digest, {*std::move(accepted), issuer->get()});
  return grant;
}

std::optional<TokenGrant> Tokens::grant_of(const daemon::TokenDigest& token, Instant now) {
  const std::lock_guard lock(mutex_);
  auto grant = find_locked(token, now);
  if (grant && has_expired(*grant)) return std::nullopt;
  return grant;
}

std::optional<TokenGrant> Tokens::find_locked(const daemon::TokenDigest& token, Instant now) {
  if (!folder_.empty() && now - read_at_ >= kTokensFreshFor) refresh(now);
  if (auto grant = table_.grant_of(token)) return grant;
  return seen_.find(token);
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
