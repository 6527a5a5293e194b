#include "worker/shell/rendezvous/rendezvous_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <string>
#include <utility>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <spdlog/spdlog.h>

#include "common/job/rendezvous_wire.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "daemon/listen.h"
#include "worker/shell/rendezvous/rendezvous_store.h"

namespace muster::worker {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using rendezvous::Op;

// The rest of a frame follows its header at once; a client that stalls in between is broken.
constexpr std::chrono::seconds kFrameBudget{30};
// Longer than any rendezvous; the coordinator gives up on the start first.
constexpr std::chrono::milliseconds kWaitMax = std::chrono::hours(1);

// One client, whose frames are answered in sequence. Pending handlers keep it alive.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, RendezvousStore& store, std::shared_ptr<void> slot)
      : socket_(std::move(socket)),
        timer_(socket_.get_executor()),
        store_(store),
        slot_(std::move(slot)) {}

  ~Session() { store_.cancel(waiting_); }

  void read_header() {
    asio::async_read(socket_, asio::buffer(header_bytes_),
                     [self = shared_from_this()](boost::system::error_code error, size_t) {
                       if (!error) self->read_body();
                     });
  }

  void close() {
    store_.cancel(std::exchange(waiting_, 0));
    timer_.cancel();
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

 private:
  void read_body() {
    const auto header = rendezvous::decode_request_header(header_bytes_);
    if (!header.ok()) {
      // The stream cannot be framed any more: answers and closes.
      return respond(false, std::string(header.status().message()), false);
    }
    header_ = *header;
    body_.resize(header_.key_bytes + header_.value_bytes);
    expire_after(kFrameBudget, [](Session& session) { session.close(); });
    asio::async_read(socket_, asio::buffer(body_),
                     [self = shared_from_this()](boost::system::error_code error, size_t) {
                       self->timer_.cancel();
                       if (!error) self->handle();
                     });
  }

  void handle() {
    const std::string key = body_.substr(0, header_.key_bytes);
    const std::string value = body_.substr(header_.key_bytes);
    if (header_.op == Op::kSet) {
      const absl::Status status = store_.set(key, value);
      return respond(status.ok(), std::string(status.message()), true);
    }
    int64_t wait_ms = 0;
    if (!absl::SimpleAtoi(value, &wait_ms) || wait_ms < 0) {
      return respond(false, "the wait is not a number of milliseconds", true);
    }
    wait_for(key, std::chrono::milliseconds(std::min<int64_t>(wait_ms, kWaitMax.count())));
  }

  void wait_for(const std::string& key, std::chrono::milliseconds wait) {
    const std::weak_ptr<Session> weak = weak_from_this();
    waiting_ = store_.get(key, [weak](absl::StatusOr<std::string> value) {
      const auto self = weak.lock();
      if (!self) return;
      self->waiting_ = 0;
      self->timer_.cancel();
      self->respond(value.ok(), value.ok() ? *value : std::string(value.status().message()), true);
    });
    if (waiting_ == 0) return;
    expire_after(wait, [key, wait](Session& session) {
      session.store_.cancel(std::exchange(session.waiting_, 0));
      session.respond(false,
                      absl::StrFormat("waited %.1f s for key '%s', which no rank has set",
                                      std::chrono::duration<double>(wait).count(),
                                      printable(key, kShownKeyBytesMax)),
                      true);
    });
    notice_hang_up();
  }

  // Ends the session of a rank that dies while it waits.
  void notice_hang_up() {
    socket_.async_wait(
        tcp::socket::wait_read, [self = shared_from_this()](boost::system::error_code error) {
          char next = 0;
          const bool gone =
              !error && recv(self->socket_.native_handle(), &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
          if (gone) self->close();
        });
  }

  void respond(bool ok, const std::string& value, bool go_on) {
    response_ = rendezvous::encode_response(ok, value);
    asio::async_write(socket_, asio::buffer(response_),
                      [self = shared_from_this(), go_on](boost::system::error_code error, size_t) {
                        if (!error && go_on) self->read_header();
                      });
  }

  template <class F>
  void expire_after(std::chrono::milliseconds budget, F&& on_expired) {
    const uint64_t serial = ++timer_serial_;
    timer_.expires_after(budget);
    timer_.async_wait([self = shared_from_this(), serial,
                       on_expired = std::forward<F>(on_expired)](boost::system::error_code error) {
      if (!error && serial == self->timer_serial_) on_expired(*self);
    });
  }

  tcp::socket socket_;
  asio::steady_timer timer_;
  uint64_t timer_serial_ = 0;
  RendezvousStore& store_;
  std::shared_ptr<void> slot_;
  std::array<char, rendezvous::kRequestHeaderBytes> header_bytes_{};
  rendezvous::RequestHeader header_;
  std::string body_;
  std::string response_;
  RendezvousStore::WaiterId waiting_ = 0;
};

// State shared with sessions, which may outlive the server object until the loop has run their last
// handlers.
struct Shared {
  explicit Shared(const RendezvousLimits& limits) : store(limits) {}

  RendezvousStore store;
  std::map<uint64_t, std::weak_ptr<Session>> sessions;
};

class AsioRendezvousServer : public RendezvousServer {
 public:
  AsioRendezvousServer(asio::io_context& context, const RendezvousLimits& limits)
      : limits_(limits),
        acceptor_(context),
        retry_(context),
        shared_(std::make_shared<Shared>(limits)) {}

  ~AsioRendezvousServer() override {
    for (const auto& [id, weak] : std::exchange(shared_->sessions, {})) {
      if (const auto session = weak.lock()) session->close();
    }
  }

  absl::Status listen(const daemon::Endpoint& endpoint) {
    if (absl::Status status = daemon::listen_on("--rendezvous", endpoint, acceptor_); !status.ok())
      return status;
    port_ = acceptor_.local_endpoint().port();
    accept();
    return absl::OkStatus();
  }

  int port() const override { return port_; }
  void drop_scope(const LaunchKey& launch) override { shared_->store.drop_scope(launch); }
  void forget_scope(const LaunchKey& launch) override { shared_->store.forget_scope(launch); }
  size_t key_count() const override { return shared_->store.key_count(); }

 private:
  void accept() {
    acceptor_.async_accept([this](boost::system::error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) {
        retry_.expires_after(daemon::kAcceptPause);
        retry_.async_wait([this](boost::system::error_code stopped) {
          if (!stopped) accept();
        });
        return;
      }
      admit(std::move(socket));
      accept();
    });
  }

  void admit(tcp::socket socket) {
    if (shared_->sessions.size() >= limits_.connections_max) {
      spdlog::warn("rendezvous: more than {} connections; refusing one", limits_.connections_max);
      return;
    }
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    const uint64_t id = next_session_++;
    const std::shared_ptr<void> slot(nullptr,
                                     [shared = shared_, id](void*) { shared->sessions.erase(id); });
    const auto session = std::make_shared<Session>(std::move(socket), shared_->store, slot);
    shared_->sessions[id] = session;
    session->read_header();
  }

  const RendezvousLimits limits_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  std::shared_ptr<Shared> shared_;
  uint64_t next_session_ = 1;
  int port_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RendezvousServer>> RendezvousServer::start(
    asio::io_context& context, const daemon::Endpoint& endpoint, const RendezvousLimits& limits) {
  auto server = std::make_unique<AsioRendezvousServer>(context, limits);
  if (auto status = server->listen(endpoint); !status.ok()) return status;
  return server;
}

}  // namespace muster::worker
