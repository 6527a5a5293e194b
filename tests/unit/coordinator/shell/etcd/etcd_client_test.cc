#include "coordinator/shell/etcd/etcd_client.h"

#include <gmock/gmock.h>

#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "etcd/etcd.pb.h"
#include "tests/unit/certificates.h"
#include "tests/unit/coordinator/shell/etcd/etcd_server.h"

namespace muster::coordinator {
namespace {

using testing::HasSubstr;

constexpr Duration kTime = std::chrono::seconds(20);

TEST(EtcdOptionsTest, MistakesAreNamed) {
  const auto problem = [](const EtcdOptions& options) {
    const absl::Status status = EtcdClient::create(options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  const auto with = [](const char* endpoints) {
    EtcdOptions options;
    options.endpoints = endpoints;
    return options;
  };
  EXPECT_THAT(problem(with("")), HasSubstr("--etcd="));
  EXPECT_THAT(problem(with("a:1,b")), HasSubstr("'b' is no address"));
  EXPECT_THAT(problem(with("https://a:1,http://b:2")), HasSubstr("both http and https"));
  EXPECT_THAT(problem(with("ftp://a:1")), HasSubstr("--etcd=ftp://a:1"));
  EtcdOptions options = with("a:1");
  options.ca = "/ca.pem";
  EXPECT_THAT(problem(options), HasSubstr("need https addresses"));
  options = with("https://a:1");
  options.cert = "/cert.pem";
  EXPECT_THAT(problem(options), HasSubstr("go together"));
  for (const char* prefix : {"", "/", "muster", "/muster/"}) {
    options = with("a:1");
    options.prefix = prefix;
    EXPECT_THAT(problem(options), HasSubstr(std::string("--etcd-prefix=") + prefix));
  }
  options = with("https://a:1");
  options.ca = "/no/such/file";
  EXPECT_THAT(std::string(EtcdClient::create(options).status().message()),
              HasSubstr("--etcd-ca=/no/such/file"));
}

TEST(EtcdOptionsTest, AllAddressesHaveTheFirstScheme) {
  EtcdOptions options;
  options.endpoints = "https://a:1,b:2,https://c:3";
  EXPECT_EQ((*EtcdClient::create(options))->endpoints(), "https://a:1,https://b:2,https://c:3");
  options.endpoints = "a:1,[::1]:2";
  EXPECT_EQ((*EtcdClient::create(options))->endpoints(), "http://a:1,http://[::1]:2");
}

class EtcdClientTest : public EtcdTest {};

TEST_F(EtcdClientTest, UsesTheMembersThatAnswer) {
  EtcdOptions some = options();
  // Nothing listens on port 1.
  some.endpoints = "http://127.0.0.1:1," + some.endpoints + ",http://127.0.0.1:1";
  const auto client = EtcdClient::create(some).value();
  EXPECT_TRUE(client->status(kTime).ok());
  etcdserverpb::RangeRequest request;
  request.set_key(client->key("x"));
  EXPECT_TRUE(client->range(request, kTime).ok());
  // A transaction goes to one member only, which the calls before have found.
  EXPECT_TRUE(client->txn({}, kTime).ok());
}

TEST_F(EtcdClientTest, NamesTheMemberThatDoesNotAnswer) {
  EtcdOptions none = options();
  none.endpoints = "127.0.0.1:1";
  const absl::Status status = EtcdClient::create(none).value()->status(kTime).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("etcd at http://127.0.0.1:1"));
}

TEST_F(EtcdClientTest, AMemberThatStandsStillTakesOnlyItsPartOfTheTime) {
  const EtcdServer& server = EtcdServer::shared();
  const auto client = EtcdClient::create(options()).value();
  ASSERT_TRUE(client->status(kTime).ok());
  server.pause();
  const absl::Status status = client->status(std::chrono::milliseconds(200)).status();
  server.resume();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(client->status(kTime).ok());
}

TEST_F(EtcdClientTest, LeasesEndByRevocation) {
  const auto client = EtcdClient::create(options()).value();
  const auto lease = client->grant_lease(std::chrono::seconds(60), kTime);
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_GE(lease->ttl, std::chrono::seconds(60));
  EXPECT_GE(client->keep_lease_alive(lease->id, kTime).value(), std::chrono::seconds(60));
  EXPECT_TRUE(client->revoke_lease(lease->id, kTime).ok());
  EXPECT_TRUE(client->revoke_lease(lease->id, kTime).ok()) << "it is gone already";
  EXPECT_TRUE(absl::IsNotFound(client->keep_lease_alive(lease->id, kTime).status()));
}

TEST_F(EtcdClientTest, ServerAndClientProveWhoTheyAre) {
  TestAuthority authority;
  const auto server = authority.sign("IP:127.0.0.1");
  const auto mine = authority.sign("DNS:coordinator");
  for (const auto& [name, text] :
       {std::pair("ca.pem", authority.certificate()), std::pair("server.pem", server.certificate),
        std::pair("server.key", server.key), std::pair("mine.pem", mine.certificate),
        std::pair("mine.key", mine.key)})
    write_file(folder_.file(name), text);
  const EtcdServer etcd(
      {"--cert-file=" + folder_.file("server.pem"), "--key-file=" + folder_.file("server.key"),
       "--trusted-ca-file=" + folder_.file("ca.pem"), "--client-cert-auth"},
      true);
  EtcdOptions secure;
  secure.endpoints = etcd.endpoint();
  secure.ca = folder_.file("ca.pem");
  secure.cert = folder_.file("mine.pem");
  secure.key = folder_.file("mine.key");
  const auto status = EtcdClient::create(secure).value()->status(kTime);
  EXPECT_TRUE(status.ok()) << status.status();
  EtcdOptions anonymous = secure;
  anonymous.cert = anonymous.key = "";
  EXPECT_FALSE(EtcdClient::create(anonymous).value()->status(kTime).ok());
  TestAuthority other;
  write_file(folder_.file("other.pem"), other.certificate());
  EtcdOptions distrustful = secure;
  distrustful.ca = folder_.file("other.pem");
  EXPECT_FALSE(EtcdClient::create(distrustful).value()->status(kTime).ok());
}

}  // namespace
}  // namespace muster::coordinator
