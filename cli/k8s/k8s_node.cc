#include "cli/k8s/k8s_node.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <nlohmann/json.hpp>

#include "common/files/errno_status.h"
#include "common/text/escape.h"
#include "common/version.h"
#include "daemon/trust_files.h"

namespace muster::cli {
namespace {

namespace beast = boost::beast;

// Bounds a node's labels and annotations; etcd stores no object above 1.5 MB.
constexpr uint64_t kNodeBytesMax = 2 << 20;
constexpr size_t kAccountTokenBytesMax = 16 << 10;
constexpr size_t kApiWordsBytesMax = 600;
constexpr size_t kNodeNameBytesMax = 253;
// Requests the object's metadata only, without its images and volumes.
constexpr char kMetadataAlone[] = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// One GET on its own connection. code() is 0 if there was no answer; error() has the reason.
class ApiGet {
 public:
  ApiGet(const KubeAccount& account, const std::string& path, Duration budget) {
    const bool is_address6 = account.host.find(':') != std::string::npos;
    request_ = {beast::http::verb::get, path, 11};
    request_.set(beast::http::field::host, absl::StrCat(is_address6 ? "[" : "", account.host,
                                                        is_address6 ? "]" : "", ":", account.port));
    request_.set(beast::http::field::user_agent, absl::StrCat("muster/", kVersion));
    request_.set(beast::http::field::accept, kMetadataAlone);
    request_.set(beast::http::field::authorization, absl::StrCat("Bearer ", account.token));
    parser_.body_limit(kNodeBytesMax);
    boost::system::error_code failed;
    trust_.add_certificate_authority(boost::asio::buffer(account.authorities), failed);
    if (failed) {
      fail("reading the certificates of ca.crt", failed);
      return;
    }
    stream_.set_verify_mode(boost::asio::ssl::verify_peer);
    stream_.set_verify_callback(boost::asio::ssl::host_name_verification(account.host));
    socket().expires_after(budget);
    boost::asio::ip::tcp::resolver resolver(context_);
    const auto addresses = resolver.resolve(account.host, account.port, failed);
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
    context_.run();
  }

  unsigned code() const { return code_; }
  const std::string& error() const { return error_; }
  const std::string& body() const { return parser_.get().body(); }

 private:
  beast::tcp_stream& socket() { return stream_.next_layer(); }

  void on_trusted(beast::error_code error) {
    if (error) return fail("TLS", error);
    beast::http::async_write(stream_, request_, [this](beast::error_code e, size_t) {
      if (e) return fail("sending", e);
      beast::http::async_read(stream_, buffer_, parser_, [this](beast::error_code failed, size_t) {
        if (failed) return fail("reading the answer", failed);
        code_ = parser_.get().result_int();
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
  unsigned code_ = 0;
  std::string error_;
};

absl::Status answer_status(unsigned code, const nlohmann::json& answer) {
  std::string words = absl::StrCat("the API of Kubernetes answered ", code);
  if (answer.is_object() && answer.contains("message") && answer["message"].is_string())
    absl::StrAppend(&words, ": ",
                    printable(answer["message"].get_ref<const std::string&>(), kApiWordsBytesMax));
  switch (code) {
    case 401:
      return absl::UnauthenticatedError(words);
    case 403:
      return absl::PermissionDeniedError(words);
    case 404:
      return absl::NotFoundError(words);
    default:
      return absl::UnavailableError(words);
  }
}

}  // namespace

absl::StatusOr<KubeAccount> account_of_pod(const std::string& folder) {
  KubeAccount account{.host = environment("KUBERNETES_SERVICE_HOST"),
                      .port = environment("KUBERNETES_SERVICE_PORT"),
                      .authorities = {},
                      .token = {}};
  if (account.host.empty() || account.port.empty()) {
    return absl::FailedPreconditionError(
        "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: run this command in a "
        "pod, where Kubernetes sets them");
  }
  auto authorities = daemon::read_certificates("--account", folder + "/ca.crt");
  if (!authorities.ok()) return authorities.status();
  account.authorities = *std::move(authorities);
  const std::string path = folder + "/token";
  errno = 0;
  std::ifstream file(path);
  if (!file) return file_status(errno, absl::StrCat("--account=", path));
  account.token.resize(kAccountTokenBytesMax);
  file.read(account.token.data(), static_cast<std::streamsize>(account.token.size()));
  account.token.resize(static_cast<size_t>(file.gcount()));
  absl::StripAsciiWhitespace(&account.token);
  const bool is_token = std::all_of(account.token.begin(), account.token.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (account.token.empty() || !is_token)
    return absl::InvalidArgumentError(absl::StrCat("--account=", path, ": not a token"));
  return account;
}

absl::StatusOr<std::map<std::string, std::string>> node_labels(const KubeAccount& account,
                                                               const std::string& node,
                                                               Duration budget) {
  const bool is_name = std::all_of(node.begin(), node.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.';
  });
  if (node.empty() || node.size() > kNodeNameBytesMax || !is_name || node == "." || node == "..") {
    return absl::InvalidArgumentError(
        absl::StrCat("--node=", printable(node, kNodeNameBytesMax),
                     ": a node's name has letters, digits, '-' and '.'"));
  }
  const ApiGet get(account, absl::StrCat("/api/v1/nodes/", node), budget);
  if (get.code() == 0) {
    return absl::UnavailableError(absl::StrCat("the API of Kubernetes at ", account.host, ":",
                                               account.port, " does not answer: ", get.error()));
  }
  const auto answer = nlohmann::json::parse(get.body(), nullptr, false);
  if (get.code() != 200) return answer_status(get.code(), answer);
  std::map<std::string, std::string> labels;
  const auto path = nlohmann::json::json_pointer("/metadata/labels");
  if (!answer.is_object())
    return absl::UnavailableError("the answer of the Kubernetes API is not a JSON object");
  if (!answer.contains(path) || !answer[path].is_object()) return labels;
  for (const auto& [name, value] : answer[path].items())
    if (value.is_string()) labels[name] = value.get<std::string>();
  return labels;
}

std::string switches_of_labels(const std::map<std::string, std::string>& labels,
                               const std::vector<std::string>& wanted) {
  std::string switches;
  for (const std::string& name : wanted) {
    const auto label = labels.find(name);
    if (label == labels.end() || label->second.empty()) break;
    absl::StrAppend(&switches, switches.empty() ? "" : ".", label->second);
  }
  return switches;
}

}  // namespace muster::cli
