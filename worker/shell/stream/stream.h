// The worker's end of Fleet.Connect: one bidirectional gRPC stream at a time, opened and closed on
// the core's request.
//
// Only the leader of several coordinators listens. A stream goes to one address, and the next
// stream to the address that follows in the list.
//
// gRPC's threads only post to the event loop; every method and every callback runs on the loop's
// thread.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/time/time.h"
#include "daemon/client_trust.h"
#include "muster/v1/muster.pb.h"
#include "worker/core/event.h"

namespace muster::worker {

// The time without an acknowledgement after which a stream is unanswered. A lost packet is
// acknowledged after some hundred milliseconds, and a node's lease lasts 10 s.
constexpr Duration kAnswerMax = std::chrono::seconds(2);

// Opens and closes streams, and queues outgoing messages.
class CoordinatorStream {
 public:
  struct Callbacks {
    std::function<void(const v1::CoordinatorMessage&)> on_message;
    // Called when the open stream has ended.
    std::function<void(StreamEnd end, const std::string& reason)> on_closed;
    std::function<void()> on_room;  // called when the full outbox has room again
  };

  // `addresses`: "host:port", or several separated by commas.
  CoordinatorStream(boost::asio::io_context& context, const std::string& addresses,
                    daemon::ClientTrust trust, Callbacks callbacks);
  // Requires !is_busy(): until then gRPC may call this object back.
  ~CoordinatorStream();
  CoordinatorStream(const CoordinatorStream&) = delete;
  CoordinatorStream& operator=(const CoordinatorStream&) = delete;

  // Opens a stream on a new connection, so that the back-off of an earlier connection does not
  // delay it. Reads the certificates and the token again. The caller may call send() at once. If
  // the connection fails or takes longer than `within`, on_closed is called. Each of several
  // addresses has an equal part of `within`.
  void open(Duration within);

  // Closes the open stream; on_closed is called afterwards.
  void close(const std::string& reason);

  // Queues a message. Closes the stream if the bounded outbox is full, because the coordinator then
  // no longer reads.
  void send(v1::WorkerMessage message);

  // Returns whether the coordinator's host has acknowledged nothing for kAnswerMax. Called after
  // each heartbeat.
  bool is_unanswered(Instant now);

  // Returns whether the caller may send bulk messages (logs); otherwise it must wait for on_room.
  bool has_room() const;

  // Returns whether a stream is open or still closing.
  bool is_busy() const { return calls_ > 0; }

 private:
  class Call;

  void write_next();
  void on_written();
  void on_read(const v1::CoordinatorMessage& message);
  void on_done(StreamEnd end, const std::string& reason);
  const std::string& address() const { return addresses_[current_]; }
  Duration share_of(Duration within) const;

  boost::asio::io_context& context_;
  const std::vector<std::string> addresses_;
  size_t current_ = 0;  // the address of the open stream, or of the next one
  // addresses in a row at which no coordinator has answered
  size_t without_answer_ = 0;
  const daemon::ClientTrust trust_;
  const Callbacks callbacks_;
  std::shared_ptr<Call> call_;  // the open stream
  std::deque<v1::WorkerMessage> outbox_;
  bool writing_ = false;
  std::string close_reason_;
  bool has_received_ = false;  // a message was received on the open stream
  int calls_ = 0;
  // The time at which the open stream was first seen to retransmit; nullopt: it does not.
  std::optional<Instant> unanswered_since_;
};

}  // namespace muster::worker
