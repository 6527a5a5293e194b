#include "coordinator/shell/identity/oidc_settings.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "common/files/file_read.h"
#include "common/job/limits.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "coordinator/shell/identity/json_text.h"
#include "daemon/https_get.h"
#include "daemon/trust_files.h"

namespace muster::coordinator {
namespace {

constexpr size_t kSettingsBytesMax = 1 << 20;
constexpr int64_t kClockSkewSeconds = 30;
constexpr size_t kWordShown = 128;
constexpr char kEverybody[] = "*";
// An account may be in more groups; a token of 6 KB names fewer.
constexpr size_t kGroupsMax = 1'000;

// The keys of the file, one at a time. The first error stays.
class SettingsReader {
 public:
  SettingsReader(const std::string& path, nlohmann::json object)
      : flag_(absl::StrCat("--oidc=", path)), object_(std::move(object)) {}

  absl::Status status() const { return status_; }

  void fail(std::string_view key, std::string_view why) {
    status_.Update(absl::InvalidArgumentError(absl::StrCat(flag_, ": ", av(key), ": ", av(why))));
  }
  void take(const char* key, std::string& value) {
    const auto one = take(key);
    if (!one) return;
    if (one->is_string() && !one->get_ref<const std::string&>().empty())
      value = one->get<std::string>();
    else
      fail(key, absl::StrCat(shown(*one), " is no text"));
  }
  // A text, or a list of texts.
  void take(const char* key, std::vector<std::string>& values) {
    if (const auto one = take(key)) values = texts_of(key, *one);
  }
  template <class Value, class Convert>
  void take_by_group(const char* key, std::map<std::string, Value>& values, Convert convert) {
    const auto one = take(key);
    if (!one) return;
    if (!one->is_object()) return fail(key, absl::StrCat(shown(*one), " is no object by group"));
    for (const auto& [group, value] : one->items()) {
      const std::string name = absl::StrCat(key, ".", printable(group, kWordShown));
      if (auto converted = convert(name, value)) values.emplace(group, *std::move(converted));
    }
  }
  std::vector<std::string> texts_of(std::string_view key, const nlohmann::json& value) {
    std::vector<std::string> texts;
    for (const nlohmann::json& one : value.is_array() ? value : nlohmann::json::array({value})) {
      if (!one.is_string() || one.get_ref<const std::string&>().empty())
        fail(key, absl::StrCat(shown(one), " is no text"));
      else
        texts.push_back(one.get<std::string>());
    }
    if (texts.empty()) fail(key, "the list is empty");
    return texts;
  }
  static std::string shown(const nlohmann::json& value) {
    return printable(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                     kWordShown);
  }
  // Refuses a key that was not taken.
  void end() {
    if (!object_.empty())
      fail(printable(object_.begin().key(), kWordShown),
           "there is no such key: issuer, audience, jwks_uri, ca_file, user_claim, user_domain, "
           "token_file, groups_claim, denied_users, roles, teams, max_priority and nodes are");
  }

 private:
  std::optional<nlohmann::json> take(const char* key) {
    const auto found = object_.find(key);
    if (found == object_.end()) return std::nullopt;
    nlohmann::json value = std::move(*found);
    object_.erase(found);
    return value;
  }

  std::string flag_;
  nlohmann::json object_;
  absl::Status status_;
};

std::optional<Role> role_of(std::string_view name) {
  for (const Role role : {Role::kWorker, Role::kViewer, Role::kSubmitter, Role::kAdmin})
    if (name_of(role) == name) return role;
  return std::nullopt;
}

void check_urls(SettingsReader& reader, const OidcSettings& settings) {
  if (settings.issuer.empty()) return reader.fail("issuer", "it is missing: an https:// address");
  if (const auto url = daemon::parse_https_url(settings.issuer); !url.ok())
    reader.fail("issuer",
                absl::StrCat(printable(settings.issuer, kWordShown), ": ", url.status().message()));
  if (settings.jwks_uri.empty()) return;
  if (const auto url = daemon::parse_https_url(settings.jwks_uri); !url.ok())
    reader.fail("jwks_uri", absl::StrCat(printable(settings.jwks_uri, kWordShown), ": ",
                                         url.status().message()));
}

void take_rights(SettingsReader& reader, OidcSettings& settings) {
  reader.take_by_group(
      "roles", settings.roles, [&](const std::string& key, const nlohmann::json& value) {
        const auto role =
            value.is_string() ? role_of(value.get_ref<const std::string&>()) : std::nullopt;
        if (!role)
          reader.fail(key, absl::StrCat(SettingsReader::shown(value),
                                        " is no role: worker, viewer, submitter "
                                        "and admin are"));
        return role;
      });
  reader.take_by_group(
      "teams", settings.teams, [&](const std::string& key, const nlohmann::json& value) {
        std::optional<std::string> team;
        if (value.is_string() && is_person_or_team(value.get_ref<const std::string&>()))
          team = value.get<std::string>();
        else
          reader.fail(key, absl::StrCat(SettingsReader::shown(value), " is no team: 1 to ",
                                        kNameBytesMax, " visible characters, no comma"));
        return team;
      });
  reader.take_by_group(
      "max_priority", settings.priorities,
      [&](const std::string& key, const nlohmann::json& value) {
        std::optional<int32_t> priority;
        if (value.is_number_integer() && std::abs(value.get<double>()) <= kPriorityMax)
          priority = value.get<int32_t>();
        else
          reader.fail(key, absl::StrCat(SettingsReader::shown(value), " is no number between -",
                                        kPriorityMax, " and ", kPriorityMax));
        return priority;
      });
  reader.take_by_group("nodes", settings.nodes,
                       [&](const std::string& key, const nlohmann::json& value) {
                         return std::optional(reader.texts_of(key, value));
                       });
  for (const auto& [group, patterns] : settings.nodes) {
    const auto role = settings.roles.find(group);
    const std::string key = absl::StrCat("nodes.", printable(group, kWordShown));
    if (role == settings.roles.end() || role->second != Role::kWorker)
      reader.fail(key, "the group has not the role worker");
    if (!std::ranges::all_of(patterns, is_person_or_team))
      reader.fail(key, "patterns of names, such as gpu-*, have no space and no comma");
  }
}

// --- claims ---

absl::Status refused(std::string_view why) {
  return absl::UnauthenticatedError(absl::StrCat("the token is refused: ", av(why)));
}

// Returns the texts of a claim that is a text or a list of texts.
std::vector<std::string> texts_of_claim(const nlohmann::json& claims, const std::string& name) {
  std::vector<std::string> texts;
  const auto found = claims.find(name);
  if (found == claims.end()) return texts;
  for (const nlohmann::json& one : found->is_array() ? *found : nlohmann::json::array({*found}))
    if (one.is_string() && texts.size() < kGroupsMax) texts.push_back(one.get<std::string>());
  return texts;
}

// Returns a time of RFC 7519 in Unix seconds; nullopt if the claim is absent or no time.
std::optional<int64_t> time_of_claim(const nlohmann::json& claims, const char* name) {
  constexpr double kTimeMax = 1e12;
  const auto found = claims.find(name);
  if (found == claims.end() || !found->is_number()) return std::nullopt;
  const auto seconds = found->get<double>();
  if (!(seconds >= 0 && seconds <= kTimeMax)) return std::nullopt;
  return static_cast<int64_t>(seconds);
}

absl::Status check_times(const nlohmann::json& claims, int64_t unix_s) {
  const auto expires = time_of_claim(claims, "exp");
  if (!expires) return refused("it has no time exp at which it expires");
  if (unix_s - kClockSkewSeconds >= *expires)
    return refused(absl::StrCat("it expired ", unix_s - *expires, " s ago"));
  if (!claims.contains("nbf")) return absl::OkStatus();
  const auto begins = time_of_claim(claims, "nbf");
  if (begins && unix_s + kClockSkewSeconds >= *begins) return absl::OkStatus();
  return refused("it is not valid yet: see its time nbf, and the clocks");
}

absl::Status check_destination(const OidcSettings& settings, const nlohmann::json& claims) {
  const std::string issuer = text_member(claims, "iss");
  if (issuer != settings.issuer)
    return refused(absl::StrCat("its issuer is ",
                                issuer.empty() ? "missing" : printable(issuer, kWordShown),
                                ", not ", settings.issuer));
  const auto audiences = texts_of_claim(claims, "aud");
  if (std::ranges::find_first_of(audiences, settings.audiences) != audiences.end())
    return absl::OkStatus();
  return refused(absl::StrCat(
      "its audience is ", audiences.empty() ? "missing" : printable(audiences.front(), kWordShown),
      ", not ", settings.audiences.front()));
}

absl::StatusOr<std::string> person_of(const OidcSettings& settings, const nlohmann::json& claims) {
  const std::string whole = text_member(claims, settings.user_claim);
  if (whole.empty())
    return refused(absl::StrCat("it has no claim ", settings.user_claim, " with a name"));
  // Some issuers let people enter any address.
  const auto verified = claims.find("email_verified");
  if (settings.user_claim == "email" && verified != claims.end() && *verified != true)
    return refused(
        absl::StrCat("the issuer has not verified the address ", printable(whole, kWordShown)));
  absl::string_view name = whole;
  if (!settings.user_domain.empty() &&
      !absl::ConsumeSuffix(&name, absl::StrCat("@", settings.user_domain)))
    return refused(
        absl::StrCat(printable(whole, kWordShown), " is not of the domain ", settings.user_domain));
  if (std::ranges::find(settings.denied_users, name) != settings.denied_users.end())
    return refused(absl::StrCat(printable(whole, kWordShown), " is one of denied_users"));
  if (is_person_or_team({name.data(), name.size()})) return std::string(name);
  return refused(absl::StrCat(printable(whole, kWordShown), " is no name: 1 to ", kNameBytesMax,
                              " visible characters, no comma"));
}

// Returns the highest role of the groups, else that of everybody; nullopt if there is none.
absl::StatusOr<std::optional<Role>> role_of_groups(const OidcSettings& settings,
                                                   const std::vector<std::string>& groups) {
  std::optional<Role> role;
  bool is_worker = false;
  for (const std::string& group : groups) {
    const auto found = settings.roles.find(group);
    if (found == settings.roles.end() || group == kEverybody) continue;
    is_worker = is_worker || found->second == Role::kWorker;
    role = std::max(role, std::optional(found->second));
  }
  if (is_worker && *role != Role::kWorker)
    return refused("its groups make it a worker and a person");
  if (role) return role;
  const auto everybody = settings.roles.find(kEverybody);
  return everybody == settings.roles.end() ? role : std::optional(everybody->second);
}

}  // namespace

absl::StatusOr<OidcSettings> read_oidc_settings(const std::string& path) {
  const auto text = read_file_up_to(kSettingsBytesMax, path, absl::StrCat("--oidc=", path));
  if (!text.ok()) return text.status();
  auto object = parse_shallow(*text);
  if (!object.is_object())
    return absl::InvalidArgumentError(absl::StrCat("--oidc=", path, ": it is no JSON object"));
  SettingsReader reader(path, std::move(object));
  OidcSettings settings;
  std::string ca_file;
  reader.take("issuer", settings.issuer);
  reader.take("audience", settings.audiences);
  reader.take("jwks_uri", settings.jwks_uri);
  reader.take("ca_file", ca_file);
  reader.take("token_file", settings.token_file);
  reader.take("denied_users", settings.denied_users);
  reader.take("user_claim", settings.user_claim);
  reader.take("user_domain", settings.user_domain);
  reader.take("groups_claim", settings.groups_claim);
  take_rights(reader, settings);
  reader.end();
  check_urls(reader, settings);
  if (settings.audiences.empty())
    reader.fail("audience", "it is missing: the name of this coordinator in tokens");
  if (settings.roles.empty())
    reader.fail("roles", "it is missing: an object with a role by group; * is everybody");
  if (!reader.status().ok()) return reader.status();
  if (ca_file.empty()) return settings;
  auto authorities = daemon::read_certificates("--oidc: ca_file", ca_file);
  if (!authorities.ok()) return authorities.status();
  settings.authorities = *std::move(authorities);
  return settings;
}

absl::StatusOr<TokenGrant> grant_of_claims(const OidcSettings& settings,
                                           const nlohmann::json& claims, int64_t unix_s) {
  if (absl::Status status = check_destination(settings, claims); !status.ok()) return status;
  if (absl::Status status = check_times(claims, unix_s); !status.ok()) return status;
  auto person = person_of(settings, claims);
  if (!person.ok()) return person.status();
  std::vector<std::string> groups = texts_of_claim(claims, settings.groups_claim);
  const auto role = role_of_groups(settings, groups);
  if (!role.ok()) return role.status();
  if (!*role)
    return refused(
        absl::StrCat(printable(*person, kWordShown), " is in no group that has a role here"));
  TokenGrant grant{.role = **role,
                   .caller = {.name = *std::move(person), .is_admin = **role == Role::kAdmin},
                   .expires_unix_s = *time_of_claim(claims, "exp") + kClockSkewSeconds};
  groups.emplace_back(kEverybody);
  std::optional<int32_t> priority;
  for (const std::string& group : groups) {
    const auto team = settings.teams.find(group);
    if (team != settings.teams.end()) grant.caller.teams.push_back(team->second);
    const auto limit = settings.priorities.find(group);
    if (limit != settings.priorities.end())
      priority = std::max(priority, std::optional(limit->second));
    const auto nodes = settings.nodes.find(group);
    if (nodes != settings.nodes.end())
      grant.nodes.insert(grant.nodes.end(), nodes->second.begin(), nodes->second.end());
  }
  if (priority) grant.caller.priority_max = *priority;
  if (grant.role == Role::kWorker && !settings.nodes.empty() && grant.nodes.empty())
    return refused("no group of the worker has `nodes`");
  return grant;
}

}  // namespace muster::coordinator
