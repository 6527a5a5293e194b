#include "worker/shell/stream/thin_streams.h"

#include <netinet/tcp.h>

#include <boost/asio/ip/tcp.hpp>
#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using boost::asio::ip::tcp;

int repeats_evenly(tcp::socket& socket) {
  int on = -1;
  socklen_t size = sizeof(on);
  getsockopt(socket.native_handle(), IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, &size);
  return on;
}

TEST(ThinStreamsTest, AppliesOnlyToConnectionsToThatPort) {
  boost::asio::io_context context;
  const tcp::endpoint anywhere(boost::asio::ip::address_v4::loopback(), 0);
  tcp::acceptor coordinator(context, anywhere), other(context, anywhere);
  tcp::socket ours(context), theirs(context);
  ours.connect(coordinator.local_endpoint());
  theirs.connect(other.local_endpoint());
  repeat_evenly(coordinator.local_endpoint().port());
  EXPECT_EQ(repeats_evenly(ours), 1);
  EXPECT_EQ(repeats_evenly(theirs), 0);
}

}  // namespace
}  // namespace muster::worker
