// Event files for TensorBoard in an object store. The files grow and objects do not: the run writes
// to a local folder, and a thread uploads copies of what has changed.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "common/time/time.h"

namespace muster::trainer {

// TensorBoard reads new data every 30 s.
constexpr Duration kEventUploadInterval = std::chrono::seconds(60);
// The time for the upload at the end of a run.
constexpr Duration kLastEventsWithin = std::chrono::seconds(10);

// Uploads the event files of a run. A thread does so from the constructor to the destructor, which
// blocks.
class RemoteEvents {
 public:
  explicit RemoteEvents(std::string url);
  // Uploads the rest. Waits at most kLastEventsWithin for a store that does not respond.
  ~RemoteEvents();
  RemoteEvents(const RemoteEvents&) = delete;
  RemoteEvents& operator=(const RemoteEvents&) = delete;

  // The folder to write to.
  const std::string& folder() const { return folder_; }

 private:
  void run();
  // Prints a warning for the first of consecutive failures. A failed upload never ends a run.
  void upload(Duration within);

  const std::string url_;
  const std::string folder_;
  bool failed_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace muster::trainer
