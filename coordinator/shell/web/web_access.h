// Decides which callers may use the page's API: the same tokens and roles as on the gRPC port
// (identity/tokens.h), given as a bearer token by programs or as a cookie by browsers.
//
// Without tokens everyone who can reach the port has all roles, as on the gRPC port. Then requests
// are limited to those that a page of another site cannot make a browser send: their host is this
// machine's address or name, or has the server's certificate, and POST requests carry a value that
// only this site's pages can read.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <absl/status/status.h>

#include "coordinator/shell/identity/tokens.h"
#include "daemon/http_message.h"
#include "daemon/trust_files.h"

namespace muster::coordinator {

struct WebAccessOptions {
  // null: no tokens are needed
  std::shared_ptr<Tokens> tokens = nullptr;
  // Whether callers on other machines are served although they need no tokens: a client certificate
  // has identified them, or the operator trusts the network.
  bool serves_strangers = false;
  // Whether only this machine reaches the port. Otherwise a caller on this machine may be a proxy
  // for strangers.
  bool is_on_loopback = true;
  int port = 0;  // distinguishes the cookies of several coordinators on one machine
};

// The caller of one request.
struct WebCaller {
  std::optional<Role> role = std::nullopt;                  // nullopt: no login
  Caller identity = {};                                     // the person of the token
  std::optional<daemon::TokenDigest> token = std::nullopt;  // nullopt: no token
  bool has_bearer = false;   // a program's token: no browser sends it by itself
  std::string refusal = {};  // why the token is refused; "": it is not, or there is none
  std::string csrf = {};     // the value that POST requests must have
};

// Thread-safe.
class WebAccess {
 public:
  explicit WebAccess(WebAccessOptions options);

  bool requires_login() const { return options_.tokens != nullptr; }

  // Returns PermissionDenied for a request that must not be answered to any caller.
  absl::Status check_host(const daemon::HttpRequest& request) const;
  WebCaller caller_of(const daemon::HttpRequest& request) const;
  // Returns Unauthenticated or PermissionDenied unless the caller has the role.
  absl::Status check_role(const WebCaller& caller, Role needed, std::string_view method) const;
  // Returns the caller with what its token permits now; it may have been removed.
  WebCaller renewed(WebCaller caller) const;
  // Returns PermissionDenied for a POST that another site's page may have caused.
  absl::Status check_post(const daemon::HttpRequest& request, const WebCaller& caller) const;

  // Returns the caller of a token; no role if it is not known, or that of a worker.
  WebCaller caller_of_token(std::string_view token) const;
  // Return the header that stores the token in the browser, or removes it.
  std::pair<std::string, std::string> login_cookie(std::string_view token) const;
  std::pair<std::string, std::string> logout_cookie() const;

 private:
  WebCaller admitted(std::string_view token, WebCaller caller) const;
  std::string cookie_name() const;
  std::string cookie_of(const daemon::HttpRequest& request) const;
  std::string csrf_of(std::string_view cookie) const;

  const WebAccessOptions options_;
  std::string secret_;  // random, per process
};

}  // namespace muster::coordinator
