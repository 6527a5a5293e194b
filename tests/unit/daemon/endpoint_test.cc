#include "daemon/endpoint.h"

#include <gmock/gmock.h>

#include <string>

#include <gtest/gtest.h>

namespace muster::daemon {
namespace {

using ::testing::HasSubstr;

TEST(Endpoint, ParsesNamesAddressesAndPorts) {
  for (const std::string text :
       {"127.0.0.1:7070", "localhost:0", "node7.cluster:65535", "[::1]:80"}) {
    const auto endpoint = parse_endpoint("--listen", text);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    EXPECT_EQ(endpoint->to_string(), text);
  }
  EXPECT_EQ(parse_endpoint("--listen", "[::1]:80")->host, "::1");
}

TEST(Endpoint, ErrorsNameTheFlagTheValueAndTheForm) {
  for (const std::string text :
       {"", "7070", "host", ":7070", "host:", "host:x", "host:-1", "host:+1", "host:65536",
        "host:99999999999999", "::1:80", "[]:80", "a b:80", "a/b:80", "http://a:80"}) {
    const auto endpoint = parse_endpoint("--listen", text);
    ASSERT_FALSE(endpoint.ok()) << text;
    EXPECT_EQ(endpoint.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(endpoint.status().message()), HasSubstr("--listen=" + text));
    EXPECT_THAT(std::string(endpoint.status().message()), HasSubstr("host:port"));
  }
  EXPECT_FALSE(parse_endpoint("--listen", std::string(10'000, 'a') + ":1").ok());
}

TEST(Endpoint, APortThatIsTooLargeIsNamed) {
  const auto endpoint = parse_endpoint("--coordinator", "127.0.0.1:99999");
  EXPECT_THAT(std::string(endpoint.status().message()),
              HasSubstr("port '99999' is not a number from 0 to 65535"));
}

TEST(Endpoint, OnlyLoopbackIsSafeWithoutTransportSecurity) {
  for (const char* host : {"localhost", "127.0.0.1", "127.8.9.10", "::1"}) {
    EXPECT_TRUE(is_loopback({host, 1})) << host;
    EXPECT_TRUE(check_open_exposure("--http", {host, 1}, false).ok());
  }
  for (const char* host :
       {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "node7", "localhost.evil.com"}) {
    EXPECT_FALSE(is_loopback({host, 1})) << host;
    const auto status = check_open_exposure("--http", {host, 1}, false);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("--trusted-network"));
    EXPECT_TRUE(check_open_exposure("--http", {host, 1}, true).ok());
  }
}

}  // namespace
}  // namespace muster::daemon
