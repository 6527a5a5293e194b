// Login, logout and the description of the API.
#include <algorithm>

#include <absl/strings/str_cat.h>

#include "common/time/time.h"
#include "common/version.h"
#include "coordinator/shell/web/web_api.h"
#include "daemon/trust_files.h"

namespace muster::coordinator {
namespace {

// Browsers drop longer cookies.
constexpr size_t kCookieBytesMax = 4'096;

}  // namespace

nlohmann::json WebApi::session_of(const WebCaller& caller) const {
  return {{"login_required", access_.requires_login()},
          {"role", caller.role ? nlohmann::json(std::string(name_of(*caller.role)))
                               : nlohmann::json(nullptr)},
          {"user", caller.identity.name},
          {"teams", caller.identity.teams},
          {"csrf", caller.csrf},
          {"version", kVersion},
          {"epoch", options_.epoch.value()},
          {"unix_ns", wall_clock_unix_ns()}};
}

void WebApi::get_session(Call& call) {
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  call.reply(json_response(session_of(call.caller)));
}

void WebApi::login(Call& call) {
  const std::string token = call.params.text("token", daemon::kTokenBytesMax);
  const WebCaller caller = access_.requires_login() ? access_.caller_of_token(token) : WebCaller();
  const auto refuse = [&](const absl::Status& status) {
    audit_of(call.request, "Login", caller, /*is_change=*/true).finish(status);
    call.fail(status);
  };
  if (const absl::Status status = call.params.status(); !status.ok()) return refuse(status);
  if (token.empty())
    return refuse(absl::InvalidArgumentError(
        "token is missing: a line of a file of --token-dir, or a token of --oidc"));
  if (!access_.requires_login())
    return refuse(absl::FailedPreconditionError(
        "this coordinator has no tokens: everyone who can reach it has all roles"));
  if (!caller.role) {
    note_refused_token(call.request);
    return refuse(absl::UnauthenticatedError(
        caller.refusal.empty() ? "a worker's token opens no page" : caller.refusal));
  }
  auto cookie = access_.login_cookie(token);
  if (cookie.second.size() > kCookieBytesMax)
    return refuse(absl::InvalidArgumentError(absl::StrCat(
        "the token has ", token.size(), " bytes, and a browser stores cookies of ", kCookieBytesMax,
        " bytes with their names and attributes: let the issuer put fewer claims into it")));
  audit_of(call.request, "Login", caller, /*is_change=*/true).finish(absl::OkStatus());
  daemon::HttpResponse response = json_response(session_of(caller));
  response.headers.push_back(std::move(cookie));
  call.reply(std::move(response));
}

void WebApi::logout(Call& call) {
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  const WebCaller left = access_.requires_login() ? access_.caller_of_token("") : call.caller;
  daemon::HttpResponse response = json_response(session_of(left));
  if (access_.requires_login()) response.headers.push_back(access_.logout_cookie());
  call.reply(std::move(response));
}

void WebApi::get_api(Call& call) {
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  call.reply(page_response(page_files(), call.request));
}

}  // namespace muster::coordinator
