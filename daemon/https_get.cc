#include "daemon/https_get.h"

#include <openssl/ssl.h>

#include <algorithm>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>

#include "common/text/absl_view.h"
#include "common/version.h"

namespace muster::daemon {
namespace {

namespace beast = boost::beast;

constexpr absl::string_view kScheme = "https://";
constexpr int kPortMax = 65'535;

bool is_address6(const std::string& host) { return host.find(':') != std::string::npos; }

class Exchange {
 public:
  explicit Exchange(const HttpsGet& get) {
    request_ = {beast::http::verb::get, get.path, 11};
    const bool has_brackets = is_address6(get.host);
    request_.set(beast::http::field::host, absl::StrCat(has_brackets ? "[" : "", get.host,
                                                        has_brackets ? "]" : "", ":", get.port));
    request_.set(beast::http::field::user_agent, absl::StrCat("muster/", kVersion));
    request_.set(beast::http::field::accept, get.accept);
    if (!get.token.empty())
      request_.set(beast::http::field::authorization, absl::StrCat("Bearer ", get.token));
    parser_.body_limit(get.body_bytes_max);
    boost::system::error_code failed;
    // Boost's own choice would permit TLS 1.0.
    SSL_CTX_set_min_proto_version(trust_.native_handle(), TLS1_2_VERSION);
    if (get.authorities.empty())
      trust_.set_default_verify_paths(failed);
    else
      trust_.add_certificate_authority(boost::asio::buffer(get.authorities), failed);
    if (failed) {
      fail("reading the certificates of its authority", failed);
      return;
    }
    stream_.set_verify_mode(boost::asio::ssl::verify_peer);
    stream_.set_verify_callback(boost::asio::ssl::host_name_verification(get.host));
    (void)boost::asio::ip::make_address(get.host, failed);
    // One address may serve several names; an address itself is no name.
    if (failed) SSL_set_tlsext_host_name(stream_.native_handle(), get.host.c_str());
    socket().expires_after(get.budget);
    boost::asio::ip::tcp::resolver resolver(context_);
    const auto addresses = resolver.resolve(get.host, get.port, failed);
    if (failed) {
      fail("resolving", failed);
      return;
    }
    socket().async_connect(
        addresses, [this](beast::error_code error, const boost::asio::ip::tcp::endpoint&) {
          if (error) return fail("connecting", error);
          stream_.async_handshake(boost::asio::ssl::stream_base::client,
                                  [this](beast::error_code e) { on_trusted(e); });
        });
    const std::stop_callback on_stop(get.stop, [this] { context_.stop(); });
    context_.run();
  }

  absl::StatusOr<HttpsAnswer> answer() {
    if (!error_.empty()) return absl::UnavailableError(error_);
    if (!is_complete_) return absl::CancelledError("stopped");
    return HttpsAnswer{parser_.get().result_int(), std::move(parser_.get().body())};
  }

 private:
  beast::tcp_stream& socket() { return stream_.next_layer(); }

  void on_trusted(beast::error_code error) {
    if (error) return fail("TLS", error);
    beast::http::async_write(stream_, request_, [this](beast::error_code e, size_t) {
      if (e) return fail("sending", e);
      beast::http::async_read(stream_, buffer_, parser_, [this](beast::error_code failed, size_t) {
        if (failed) return fail("reading the answer", failed);
        is_complete_ = true;
      });
    });
  }

  void fail(const char* what, const boost::system::error_code& error) {
    error_ = absl::StrCat(what, ": ", error.message());
  }

  boost::asio::io_context context_{1};
  boost::asio::ssl::context trust_{boost::asio::ssl::context::tls_client};
  beast::ssl_stream<beast::tcp_stream> stream_{context_, trust_};
  beast::http::request<beast::http::empty_body> request_;
  beast::http::response_parser<beast::http::string_body> parser_;
  beast::flat_buffer buffer_;
  std::string error_;
  bool is_complete_ = false;
};

}  // namespace

absl::StatusOr<HttpsGet> parse_https_url(std::string_view url) {
  absl::string_view rest = av(url);
  if (!absl::ConsumePrefix(&rest, kScheme))
    return absl::InvalidArgumentError("it must begin with https://");
  const bool is_plain = std::ranges::all_of(
      rest, [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != '#'; });
  if (!is_plain) return absl::InvalidArgumentError("it has a space, a control character or a #");
  const size_t slash = std::min(rest.find_first_of("/?"), rest.size());
  absl::string_view authority = rest.substr(0, slash);
  HttpsGet get;
  get.path = std::string(rest.substr(slash));
  if (get.path.empty() || get.path.front() != '/') get.path.insert(0, "/");
  if (authority.find('@') != absl::string_view::npos)
    return absl::InvalidArgumentError("it must not have a user");
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.rfind(':');
  if (colon != absl::string_view::npos && (bracket == absl::string_view::npos || colon > bracket)) {
    int port = 0;
    get.port = std::string(authority.substr(colon + 1));
    if (!absl::SimpleAtoi(get.port, &port) || port < 1 || port > kPortMax)
      return absl::InvalidArgumentError("its port must be between 1 and 65535");
    authority = authority.substr(0, colon);
  }
  if (absl::ConsumePrefix(&authority, "[")) absl::ConsumeSuffix(&authority, "]");
  get.host = std::string(authority);
  if (get.host.empty()) return absl::InvalidArgumentError("it has no host");
  return get;
}

absl::StatusOr<HttpsAnswer> https_get(const HttpsGet& get) { return Exchange(get).answer(); }

}  // namespace muster::daemon
