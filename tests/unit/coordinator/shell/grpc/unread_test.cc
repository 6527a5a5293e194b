#include "coordinator/shell/grpc/unread.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <string>

#include <absl/strings/str_cat.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

using boost::asio::ip::tcp;

class UnreadTest : public testing::Test {
 protected:
  explicit UnreadTest(const char* address = "127.0.0.1") {
    acceptor_.open(tcp::v4());
    acceptor_.bind({boost::asio::ip::make_address(address), 0});
    acceptor_.listen();
  }

  // Opens a connection. Returns its address as gRPC writes it.
  std::string connect(tcp::socket& client, tcp::socket& accepted) {
    client.connect(acceptor_.local_endpoint());
    acceptor_.accept(accepted);
    connections_.add(accepted.native_handle());
    return absl::StrCat("ipv4:127.0.0.1:", client.local_endpoint().port());
  }

  // Sends a byte, and waits until it has arrived.
  static void send(tcp::socket& client, tcp::socket& accepted) {
    boost::asio::write(client, boost::asio::buffer("x", 1));
    pollfd poll_for{accepted.native_handle(), POLLIN, 0};
    ASSERT_EQ(poll(&poll_for, 1, -1), 1);
  }

  boost::asio::io_context context_;
  tcp::acceptor acceptor_{context_};
  OpenConnections connections_;
};

TEST_F(UnreadTest, SeesBytesUntilTheyAreRead) {
  tcp::socket client(context_);
  tcp::socket accepted(context_);
  const std::string peer = connect(client, accepted);
  EXPECT_FALSE(connections_.has_unread(peer));
  send(client, accepted);
  EXPECT_TRUE(connections_.has_unread(peer));
  char byte = 0;
  boost::asio::read(accepted, boost::asio::buffer(&byte, 1));
  EXPECT_FALSE(connections_.has_unread(peer));
  EXPECT_FALSE(connections_.has_unread("ipv4:127.0.0.1:1"));
  EXPECT_FALSE(connections_.has_unread("garbage"));
}

// gRPC closes its descriptors without notice, and the kernel assigns their numbers again.
TEST_F(UnreadTest, DoesNotTakeAnotherConnectionForTheOneThatWasClosed) {
  tcp::socket client(context_);
  tcp::socket other(context_);
  other.open(tcp::v4());  // before the descriptor is free again
  std::string peer;
  int descriptor = -1;
  {
    tcp::socket accepted(context_);
    peer = connect(client, accepted);
    descriptor = accepted.native_handle();
  }
  EXPECT_FALSE(connections_.has_unread(peer)) << "the descriptor is closed";
  other.connect(acceptor_.local_endpoint());
  tcp::socket accepted(context_);
  acceptor_.accept(accepted);
  ASSERT_EQ(dup2(accepted.native_handle(), descriptor), descriptor);
  send(other, accepted);
  EXPECT_FALSE(connections_.has_unread(peer)) << "the bytes are those of another peer";
  connections_.add(descriptor);
  EXPECT_FALSE(connections_.has_unread(peer));
  EXPECT_TRUE(
      connections_.has_unread(absl::StrCat("ipv4:127.0.0.1:", other.local_endpoint().port())));
  if (descriptor != accepted.native_handle()) close(descriptor);
}

TEST(Unread, ReadsAddressesOfVersion6) {
  boost::asio::io_context context;
  tcp::acceptor acceptor(context);
  boost::system::error_code error;
  acceptor.open(tcp::v6(), error);
  if (!error) acceptor.bind({boost::asio::ip::address_v6::loopback(), 0}, error);
  if (error) GTEST_SKIP() << "this machine has no IPv6: " << error.message();
  acceptor.listen();
  tcp::socket client(context);
  client.connect(acceptor.local_endpoint());
  tcp::socket accepted(context);
  acceptor.accept(accepted);
  OpenConnections connections;
  connections.add(accepted.native_handle());
  boost::asio::write(client, boost::asio::buffer("x", 1));
  pollfd poll_for{accepted.native_handle(), POLLIN, 0};
  ASSERT_EQ(poll(&poll_for, 1, -1), 1);
  EXPECT_TRUE(
      connections.has_unread(absl::StrCat("ipv6:%5B::1%5D:", client.local_endpoint().port())));
}

}  // namespace
}  // namespace muster::coordinator
