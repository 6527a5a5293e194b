#include "daemon/endpoint.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>

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

TEST(Endpoint, AListOfCoordinatorsHasOneAddressOrMore) {
  for (const std::string text : {"a:1", "a:7070,b:7070,c:7070", "[::1]:80,127.0.0.1:80"}) {
    const auto coordinators = parse_coordinators(text);
    ASSERT_TRUE(coordinators.ok()) << coordinators.status();
    std::string again;
    for (const Endpoint& one : *coordinators) again += (again.empty() ? "" : ",") + one.to_string();
    EXPECT_EQ(again, text);
  }
}

TEST(Endpoint, ABadListOfCoordinatorsNamesTheEntry) {
  for (const auto& [text, why] :
       {std::pair{"a:7070,b", "--coordinator=b: the port is missing"},
        {"a:7070,,b:7070", "--coordinator=: the port is missing"},
        {"a:7070,", "--coordinator=: the port is missing"},
        {"a:7070, b:7070", "--coordinator= b:7070: the host is not a name"},
        {"a:7070,b:0", "--coordinator=b:0: port 0"},
        {"a:1,b:1,a:1", "--coordinator=a:1: this address is in the list twice"},
        {"a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:9,a:10", "more than 9 addresses"}}) {
    const auto coordinators = parse_coordinators(text);
    EXPECT_EQ(coordinators.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(coordinators.status().message()), HasSubstr(why));
  }
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
