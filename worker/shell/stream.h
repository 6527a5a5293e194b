// The worker's end of Fleet.Connect: one bidirectional gRPC stream at a time, opened and given up as the core
// wants.
//
// gRPC's threads only post to the event loop; every method and every callback runs on the loop's thread.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "daemon/client_trust.h"
#include "muster/v1/muster.pb.h"
#include "worker/core/event.h"

namespace muster::worker {

class CoordinatorStream {
 public:
  struct Callbacks {
    std::function<void(const v1::CoordinatorMessage&)> on_message;
    // The open stream ended.
    std::function<void(StreamEnd end, const std::string& reason)> on_closed;
    std::function<void()> on_room;  // there is room in the outbox again
  };

  CoordinatorStream(boost::asio::io_context& context, std::string address,
                    daemon::ClientTrust trust, Callbacks callbacks);
  // Requires !is_busy(): gRPC may still be calling back until then.
  ~CoordinatorStream();
  CoordinatorStream(const CoordinatorStream&) = delete;
  CoordinatorStream& operator=(const CoordinatorStream&) = delete;

  // Starts a stream on a connection of its own, so that no back-off of an earlier one delays it, and with certificates and a token
  // that are read now. Messages may be sent at once; failure to connect comes as on_closed.
  void open();

  // Gives the open stream up; on_closed follows.
  void close(const std::string& reason);

  // Queues a message. When even the bounded outbox is full, the coordinator is stuck: the stream is closed.
  void send(v1::WorkerMessage message);

  // Bulk messages wait for their turn in the caller: they are welcome only while this holds.
  bool has_room() const;

  // A stream is open or still winding down.
  bool is_busy() const { return calls_ > 0; }

 private:
  class Call;

  void write_next();
  void on_written();
  void on_read(const v1::CoordinatorMessage& message);
  void on_done(StreamEnd end, const std::string& reason);

  boost::asio::io_context& context_;
  const std::string address_;
  const daemon::ClientTrust trust_;
  const Callbacks callbacks_;
  std::shared_ptr<Call> call_;  // the open stream
  std::deque<v1::WorkerMessage> outbox_;
  bool writing_ = false;
  std::string close_reason_;
  bool heard_ = false;  // on the open stream
  int calls_ = 0;
};

}  // namespace muster::worker
