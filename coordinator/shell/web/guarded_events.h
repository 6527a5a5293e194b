// Server-sent events, and what all streams of them have in common: pings, and the end of a stream
// whose caller is no longer permitted to receive it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/text/absl_view.h"
#include "coordinator/shell/web/web_reply.h"
#include "daemon/http_message.h"

namespace muster::coordinator {

// Returns an event. `id`: "" for none.
inline std::shared_ptr<const std::string> event_text(std::string_view event,
                                                     const nlohmann::json& data,
                                                     std::string_view id = {}) {
  return std::make_shared<const std::string>(
      absl::StrCat(id.empty() ? "" : absl::StrCat("id: ", av(id), "\n"), "event: ", av(event),
                   "\ndata: ", json_text(data), "\n\n"));
}

// The source of a stream around the source of its events. Proxies and browsers drop a silent
// connection after a minute or less; a client that receives no pings detects that its
// connection is dead. Used on the server's thread.
class GuardedEvents final : public daemon::HttpSource {
 public:
  // `check`: returns an error once the caller is no longer permitted.
  GuardedEvents(std::shared_ptr<daemon::HttpSink> sink, std::shared_ptr<daemon::HttpSource> source,
                std::function<absl::Status()> check)
      : sink_(std::move(sink)), source_(std::move(source)), check_(std::move(check)) {}

  void on_sent() override {
    if (source_ != nullptr) source_->on_sent();
  }
  void on_ping() override {
    static const auto kPing = event_text("ping", nlohmann::json::object());
    if (source_ == nullptr) return;
    const absl::Status status = check_();
    if (status.ok()) {
      sink_->send(kPing);
      return source_->on_ping();
    }
    source_.reset();
    sink_->send(event_text("end", {{"message", std::string(status.message())}}));
    sink_->end();
  }

 private:
  const std::shared_ptr<daemon::HttpSink> sink_;
  std::shared_ptr<daemon::HttpSource> source_;  // null: the stream has ended
  const std::function<absl::Status()> check_;
};

}  // namespace muster::coordinator
