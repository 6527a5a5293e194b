#include "coordinator/shell/grpc/file_maker.h"

#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>

namespace muster::coordinator {

FileMaker::~FileMaker() {
  const std::lock_guard lock(mutex_);
  stop_.request_stop();
  if (thread_.joinable()) thread_.join();
}

grpc::ServerWriteReactor<v1::FileChunk>* FileMaker::answer(
    Audit audit, std::function<absl::StatusOr<SentFile>(const std::stop_token&)> make) {
  const bool is_free = !busy_->exchange(true);
  const std::shared_ptr<void> ticket(nullptr, [busy = busy_, is_free](void*) {
    if (is_free) *busy = false;
  });
  const std::stop_source stop;
  const auto stream =
      std::make_shared<FileStream>(metrics_, method_, stop, ticket, std::move(audit));
  stream->begin();
  if (!is_free) {
    stream->send(absl::ResourceExhaustedError(
        absl::StrCat("another ", file_, " is in progress: try again later")));
    return stream.get();
  }
  const std::lock_guard lock(mutex_);
  if (thread_.joinable()) thread_.join();  // its stream has ended
  stop_ = stop;
  try {
    thread_ = std::thread(
        [stream, make = std::move(make), token = stop.get_token()] { stream->send(make(token)); });
  } catch (const std::system_error& error) {
    stream->send(absl::ResourceExhaustedError(
        absl::StrCat("no thread can be started for the ", file_, ": ", error.what())));
  }
  return stream.get();
}

}  // namespace muster::coordinator
