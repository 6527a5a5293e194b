#include "cli/k8s/k8s_node.h"

#include <gmock/gmock.h>

#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>

#include "tests/unit/certificates.h"
#include "tests/unit/temp_folder.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kBudget = std::chrono::seconds(20);

TEST(SwitchesOfLabels, JoinsValuesInOrderUpToTheFirstMissingLabel) {
  const std::map<std::string, std::string> labels = {
      {"layer-1", "nn-a"}, {"layer-2", "nn-b"}, {"layer-4", "nn-d"}, {"empty", ""}};
  EXPECT_EQ(switches_of_labels(labels, {"layer-1", "layer-2"}), "nn-a.nn-b");
  EXPECT_EQ(switches_of_labels(labels, {"layer-2", "layer-1"}), "nn-b.nn-a");
  EXPECT_EQ(switches_of_labels(labels, {"layer-1", "layer-3", "layer-4"}), "nn-a");
  EXPECT_EQ(switches_of_labels(labels, {"layer-1", "empty", "layer-4"}), "nn-a");
  EXPECT_EQ(switches_of_labels(labels, {"layer-3", "layer-1"}), "");
}

// An API server that answers one request and records it. Without an answer it accepts the
// connection and stays silent.
class Api {
 public:
  Api(TestAuthority& authority, const std::string& names, unsigned code, std::string answer)
      : code_(code), answer_(std::move(answer)) {
    const TestAuthority::Signed own = authority.sign(names);
    trust_.use_certificate_chain(boost::asio::buffer(own.certificate));
    trust_.use_private_key(boost::asio::buffer(own.key), boost::asio::ssl::context::pem);
    thread_ = std::thread([this] { serve(); });
  }
  ~Api() {
    if (thread_.joinable()) thread_.join();
  }
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  KubeAccount account(const TestAuthority& authority) const {
    return {.host = "127.0.0.1",
            .port = std::to_string(acceptor_.local_endpoint().port()),
            .authorities = authority.certificate(),
            .token = "a.pods.token"};
  }
  // Empty if no request was sent.
  const boost::beast::http::request<boost::beast::http::string_body>& request() {
    if (thread_.joinable()) thread_.join();
    return request_;
  }

 private:
  void serve() {
    namespace beast = boost::beast;
    beast::error_code error;
    beast::ssl_stream<beast::tcp_stream> stream(acceptor_.accept(), trust_);
    beast::flat_buffer buffer;
    if (code_ == 0) {  // until the caller has given up
      char byte = 0;
      while (!error) stream.next_layer().socket().read_some(boost::asio::buffer(&byte, 1), error);
      return;
    }
    stream.handshake(boost::asio::ssl::stream_base::server, error);
    if (error) return;
    beast::http::read(stream, buffer, request_, error);
    if (error) return;
    beast::http::response<beast::http::string_body> response(
        static_cast<beast::http::status>(code_), 11);
    response.body() = answer_;
    response.prepare_payload();
    beast::http::write(stream, response, error);
  }

  unsigned code_;
  std::string answer_;
  boost::asio::io_context context_;
  boost::asio::ssl::context trust_{boost::asio::ssl::context::tls_server};
  boost::asio::ip::tcp::acceptor acceptor_{context_, {boost::asio::ip::address_v4::loopback(), 0}};
  boost::beast::http::request<boost::beast::http::string_body> request_;
  std::thread thread_;
};

class NodeLabels : public ::testing::Test {
 protected:
  TestAuthority authority_;
};

TEST_F(NodeLabels, AreRequestedWithTheAccountsToken) {
  Api api(authority_, "IP:127.0.0.1", 200,
          R"({"metadata": {"name": "node1", "labels": {"zone": "a", "odd": 5}}})");
  const auto labels = node_labels(api.account(authority_), "node1", kBudget);
  ASSERT_TRUE(labels.ok()) << labels.status();
  EXPECT_EQ(*labels, (std::map<std::string, std::string>{{"zone", "a"}}));
  EXPECT_EQ(api.request().target(), "/api/v1/nodes/node1");
  EXPECT_EQ(api.request()["Authorization"], "Bearer a.pods.token");
  EXPECT_THAT(std::string(api.request()["Accept"]), HasSubstr("PartialObjectMetadata"));
}

TEST_F(NodeLabels, ANodeWithoutAnyHasNone) {
  Api api(authority_, "IP:127.0.0.1", 200, R"({"metadata": {"name": "node1"}})");
  const auto labels = node_labels(api.account(authority_), "node1", kBudget);
  ASSERT_TRUE(labels.ok()) << labels.status();
  EXPECT_TRUE(labels->empty());
}

TEST_F(NodeLabels, APermissionErrorHasTheApisMessage) {
  Api api(authority_, "IP:127.0.0.1", 403, R"({"message": "nodes \"node1\" is forbidden"})");
  const auto labels = node_labels(api.account(authority_), "node1", kBudget);
  EXPECT_EQ(labels.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(labels.status().message()),
              HasSubstr("answered 403: nodes \"node1\" is forbidden"));
}

TEST_F(NodeLabels, InvalidAnswersAreErrors) {
  for (const char* answer : {"", "[1]", "{"}) {
    Api api(authority_, "IP:127.0.0.1", 200, answer);
    const auto labels = node_labels(api.account(authority_), "node1", kBudget);
    EXPECT_EQ(labels.status().code(), absl::StatusCode::kUnavailable) << answer;
  }
}

TEST_F(NodeLabels, TheTokenIsOnlySentToTheCertifiedServer) {
  TestAuthority strangers;
  Api with_another_authority(strangers, "IP:127.0.0.1", 200, "{}");
  Api with_another_name(authority_, "IP:127.0.0.2", 200, "{}");
  for (Api* api : {&with_another_authority, &with_another_name}) {
    const auto labels = node_labels(api->account(authority_), "node1", kBudget);
    EXPECT_EQ(labels.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(labels.status().message()), HasSubstr("does not answer: TLS: "));
    EXPECT_EQ(api->request()["Authorization"], "");
  }
}

TEST_F(NodeLabels, ASilentApiTimesOut) {
  Api api(authority_, "IP:127.0.0.1", 0, "");
  const auto labels = node_labels(api.account(authority_), "node1", std::chrono::milliseconds(200));
  EXPECT_EQ(labels.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(labels.status().message()), HasSubstr("does not answer: TLS: "));
}

TEST_F(NodeLabels, AnInvalidNodeNameIsNotRequested) {
  for (const char* name : {"", "..", "a/b", "a?b", "a b"}) {
    const auto labels = node_labels({}, name, kBudget);
    EXPECT_EQ(labels.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(labels.status().message()), StartsWith("--node=")) << name;
  }
}

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(AccountOfPod, IsReadFromVariablesAndFiles) {
  EXPECT_EQ(account_of_pod("/nowhere").status().code(), absl::StatusCode::kFailedPrecondition);
  const Variable host("KUBERNETES_SERVICE_HOST", "10.0.0.1");
  const Variable port("KUBERNETES_SERVICE_PORT", "443");
  TempFolder folder;
  EXPECT_EQ(account_of_pod(folder.path()).status().code(), absl::StatusCode::kNotFound);
  TestAuthority authority;
  write_file(folder.file("ca.crt"), authority.certificate());
  write_file(folder.file("token"), "two words\n");
  EXPECT_THAT(std::string(account_of_pod(folder.path()).status().message()),
              HasSubstr("not a token"));
  const std::string token(1200, 't');  // as long as in Kubernetes
  write_file(folder.file("token"), token + "\n");
  const auto account = account_of_pod(folder.path());
  ASSERT_TRUE(account.ok()) << account.status();
  EXPECT_EQ(account->host, "10.0.0.1");
  EXPECT_EQ(account->port, "443");
  EXPECT_EQ(account->token, token);
  EXPECT_EQ(account->authorities, authority.certificate());
}

}  // namespace
}  // namespace muster::cli
