// Responses without an end.
#include <absl/strings/str_cat.h>

#include "daemon/beast_session.h"

namespace muster::daemon {
namespace {

namespace beast = boost::beast;
using boost::asio::buffer;

class SessionSink final : public HttpSink {
 public:
  SessionSink(std::weak_ptr<BeastSession> session, std::shared_ptr<HttpMailbox> mailbox)
      : session_(std::move(session)), mailbox_(std::move(mailbox)) {}

  void send(std::shared_ptr<const std::string> part) override {
    mailbox_->post([session = session_, part = std::move(part)] {
      if (const auto self = session.lock()) self->send(part);
    });
  }
  void end() override {
    mailbox_->post([session = session_] {
      if (const auto self = session.lock()) self->end_stream();
    });
  }

 private:
  const std::weak_ptr<BeastSession> session_;
  const std::shared_ptr<HttpMailbox> mailbox_;
};

}  // namespace

std::shared_ptr<HttpSink> BeastSession::make_sink() {
  return std::make_shared<SessionSink>(weak_from_this(), mailbox_);
}

void BeastSession::open_stream(HttpResponse content) {
  std::string header =
      absl::StrCat("HTTP/1.1 200 OK\r\nContent-Type: ", content.content_type, "\r\n");
  for (const auto& [name, value] : content.headers)
    absl::StrAppend(&header, name, ": ", value, "\r\n");
  absl::StrAppend(&header, "Cache-Control: no-store\r\nConnection: close\r\n\r\n");
  awaits_ = Awaits::kNothing;
  is_open_ = true;
  // A client of a stream sends nothing more; the read ends when it leaves.
  drain();
  send(std::make_shared<const std::string>(std::move(header)));
  if (parser_->get().method() == beast::http::verb::head) return end_stream();
  source_ = content.open(make_sink());
  ping_later();
}

void BeastSession::ping_later() {
  waiting_.expires_after(options_.ping_every);
  waiting_.async_wait([self = shared_from_this()](beast::error_code error) {
    if (error || !self->is_open_ || self->source_ == nullptr) return;
    self->ping_later();
    self->source_->on_ping();
  });
}

void BeastSession::send(std::shared_ptr<const std::string> part) {
  if (!is_open_ || part->empty()) return;
  unsent_bytes_ += part->size();
  unsent_.push_back(std::move(part));
  if (unsent_bytes_ > kUnsentBytesMax) return close();
  if (unsent_.size() == 1) write_part();
}

void BeastSession::end_stream() {
  is_ending_ = true;
  if (is_open_ && unsent_.empty()) finish();
}

void BeastSession::write_part() {
  socket_.tcp().expires_after(options_.client_budget);
  socket_.async_write_some(buffer(*unsent_.front()) + part_sent_,
                           [self = shared_from_this()](beast::error_code error, size_t bytes) {
                             if (error) return self->close();
                             self->part_sent_ += bytes;
                             if (self->part_sent_ < self->unsent_.front()->size())
                               return self->write_part();
                             self->on_part_sent();
                           });
}

void BeastSession::on_part_sent() {
  socket_.tcp().expires_never();
  unsent_bytes_ -= unsent_.front()->size();
  unsent_.pop_front();
  part_sent_ = 0;
  if (!unsent_.empty()) return write_part();
  if (is_ending_) return finish();
  if (source_ != nullptr) source_->on_sent();
}

}  // namespace muster::daemon
