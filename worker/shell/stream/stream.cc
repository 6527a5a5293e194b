#include "worker/shell/stream/stream.h"

#include <algorithm>
#include <utility>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>
#include <boost/asio/post.hpp>
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include "common/process/port_range.h"
#include "common/text/escape.h"
#include "daemon/channel_arguments.h"
#include "daemon/client_credentials.h"
#include "daemon/limits.h"
#include "daemon/valid_texts.h"
#include "muster/v1/muster.grpc.pb.h"
#include "worker/shell/stream/thin_streams.h"

namespace muster::worker {
namespace {

// Number of bulk messages in the outbox: enough to keep the connection busy, few enough that a
// heartbeat after them is not late. 16 chunks of 64 KiB are 1 MiB.
constexpr size_t kBulkOutboxMax = 16;
// The shortest ping interval that gRPC's servers accept. With pings enabled, the kernel closes a
// connection whose data is not acknowledged within the timeout; heartbeats are such data every
// second.
constexpr int kKeepaliveTimeMs = 300'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
constexpr size_t kReasonBytesMax = 512;
// The maximum size of an order. Earlier coordinators accepted specs of almost kMessageBytesMax,
// which an order contains beside its ranks.
constexpr int kOrderBytesMax = daemon::kMessageBytesMax + (1 << 20);

std::shared_ptr<grpc::Channel> make_channel(const std::string& address,
                                            const daemon::ClientSecrets& secrets, Duration within) {
  grpc::ChannelArguments arguments = daemon::channel_arguments();
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // gRPC's name for the time limit of a connection. The channel is used for one stream only.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   static_cast<int>(within / std::chrono::milliseconds(1)));
  // Each probe costs the coordinator a ping; orders are small.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetMaxReceiveMessageSize(kOrderBytesMax);
  arguments.SetMaxSendMessageSize(daemon::kMessageBytesMax);
  return grpc::CreateCustomChannel(address, daemon::channel_credentials(secrets), arguments);
}

// Returns 0 if the address names a service.
uint16_t port_of(const std::string& address) {
  uint32_t port = 0;
  const size_t colon = address.rfind(':');
  const bool is_number = colon != std::string::npos &&
                         absl::SimpleAtoi(absl::string_view(address).substr(colon + 1), &port);
  return is_number && port <= kPortMax ? static_cast<uint16_t>(port) : 0;
}

StreamEnd meaning_of(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::INVALID_ARGUMENT:
      return StreamEnd::kRefused;
    case grpc::StatusCode::ALREADY_EXISTS:
      return StreamEnd::kReplaced;
    default:
      return StreamEnd::kBroken;
  }
}

}  // namespace

// One stream. A read is always outstanding or being handled, so its failure reveals the end: then
// the hold, which lets the loop start operations, is released, and gRPC calls OnDone. The object
// keeps itself alive until then, and through the posted handlers beyond.
class CoordinatorStream::Call
    : public grpc::ClientBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>,
      public std::enable_shared_from_this<Call> {
 public:
  Call(CoordinatorStream* owner, boost::asio::io_context& context, const std::string& address,
       const daemon::ClientSecrets& secrets, Duration within)
      : owner_(owner),
        loop_(context),
        stub_(v1::Fleet::NewStub(make_channel(address, secrets, within))) {}

  void start() {
    self_ = shared_from_this();
    stub_->async()->Connect(&context_, this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }

  // `more`: another message follows at once, so that one packet has both.
  void write(v1::WorkerMessage message, bool more) {
    outgoing_ = std::move(message);
    grpc::WriteOptions options;
    if (more) options.set_buffer_hint();
    StartWrite(&outgoing_, options);
  }

  void cancel() { context_.TryCancel(); }

  bool ended() const { return ended_; }

  void OnReadDone(bool ok) override {
    boost::asio::post(loop_, [this, self = shared_from_this(), ok] {
      if (!ok) {
        ended_ = true;
        RemoveHold();
        return;
      }
      if (owner_->call_.get() == this) owner_->on_read(incoming_);
      StartRead(&incoming_);
    });
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return;  // the read fails as well
    boost::asio::post(loop_, [this, self = shared_from_this()] {
      if (owner_->call_.get() == this) owner_->on_written();
    });
  }

  void OnDone(const grpc::Status& status) override {
    boost::asio::post(loop_, [this, self = std::move(self_), status] {
      --owner_->calls_;
      if (owner_->call_.get() != this) return;
      owner_->on_done(meaning_of(status.error_code()),
                      printable(status.error_message(), kReasonBytesMax));
    });
  }

 private:
  CoordinatorStream* owner_;  // outlives every call
  boost::asio::io_context& loop_;
  std::unique_ptr<v1::Fleet::Stub> stub_;
  grpc::ClientContext context_;
  v1::CoordinatorMessage incoming_;
  v1::WorkerMessage outgoing_;
  std::shared_ptr<Call> self_;
  bool ended_ = false;
};

CoordinatorStream::CoordinatorStream(boost::asio::io_context& context, const std::string& addresses,
                                     daemon::ClientTrust trust, Callbacks callbacks)
    : context_(context),
      addresses_(absl::StrSplit(addresses, ',')),
      trust_(std::move(trust)),
      callbacks_(std::move(callbacks)) {}

CoordinatorStream::~CoordinatorStream() = default;

void CoordinatorStream::open(Duration within) {
  if (call_) return;
  unanswered_since_.reset();
  close_reason_.clear();
  has_received_ = false;
  ++calls_;
  const auto secrets = daemon::read_secrets(trust_);
  if (!secrets.ok()) {
    // Possibly a half-finished certificate renewal: retried like an absent coordinator.
    boost::asio::post(context_, [this, why = std::string(secrets.status().message())] {
      --calls_;
      callbacks_.on_closed(StreamEnd::kBroken, why);
    });
    return;
  }
  call_ = std::make_shared<Call>(this, context_, address(), *secrets, share_of(within));
  call_->start();
}

// TCP repeats the first packet of a connection after a second.
Duration CoordinatorStream::share_of(Duration within) const {
  constexpr Duration kShareMin = std::chrono::seconds(1);
  const Duration share = within / static_cast<int64_t>(addresses_.size());
  return addresses_.size() == 1 ? within : std::max(share, kShareMin);
}

void CoordinatorStream::close(const std::string& reason) {
  if (!call_) return;
  close_reason_ = reason;
  call_->cancel();
}

void CoordinatorStream::send(v1::WorkerMessage message) {
  if (!call_ || call_->ended()) return;
  if (outbox_.size() >= daemon::kOutboxMax) {
    close("the coordinator takes no messages");
    return;
  }
  daemon::make_texts_valid(message);
  outbox_.push_back(std::move(message));
  write_next();
}

bool CoordinatorStream::is_unanswered(Instant now) {
  if (!call_ || !has_received_ || !only_retransmits(port_of(address()))) {
    unanswered_since_.reset();
    return false;
  }
  if (!unanswered_since_) unanswered_since_ = now;
  return *unanswered_since_ + kAnswerMax <= now;
}

bool CoordinatorStream::has_room() const {
  return call_ && !call_->ended() && outbox_.size() < kBulkOutboxMax;
}

void CoordinatorStream::write_next() {
  if (writing_ || outbox_.empty() || call_->ended()) return;
  writing_ = true;
  v1::WorkerMessage message = std::move(outbox_.front());
  outbox_.pop_front();
  call_->write(std::move(message), !outbox_.empty());
}

void CoordinatorStream::on_written() {
  writing_ = false;
  write_next();
  if (has_room()) callbacks_.on_room();
}

void CoordinatorStream::on_read(const v1::CoordinatorMessage& message) {
  if (!std::exchange(has_received_, true)) repeat_evenly(port_of(address()));
  callbacks_.on_message(message);
}

void CoordinatorStream::on_done(StreamEnd end, const std::string& reason) {
  call_.reset();
  outbox_.clear();
  writing_ = false;
  std::string why = close_reason_.empty() ? reason : close_reason_;
  if (why.empty()) why = "the coordinator ended the stream";
  if (addresses_.size() > 1) {
    why = absl::StrCat(address(), ": ", why);
    // A coordinator that refuses the worker leads.
    without_answer_ = has_received_ || end != StreamEnd::kBroken ? 0 : without_answer_ + 1;
    current_ = (current_ + 1) % addresses_.size();
    if (without_answer_ % addresses_.size() != 0) end = StreamEnd::kElsewhere;
  }
  callbacks_.on_closed(end, why);
}

}  // namespace muster::worker
