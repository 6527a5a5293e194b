#include "trainer_core/report/remote_events.h"

#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "common/objects/object_cache.h"
#include "common/objects/object_store.h"

namespace muster::trainer {

namespace fs = std::filesystem;

RemoteEvents::RemoteEvents(std::string url)
    : url_(std::move(url)),
      folder_(folder_of_url(object_cache_folder(), url_) + "/events"),
      thread_([this] { run(); }) {}

RemoteEvents::~RemoteEvents() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  upload(kLastEventsWithin);
}

void RemoteEvents::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kEventUploadInterval, [this] { return ending_; })) {
    lock.unlock();
    upload(kEventUploadInterval);
    lock.lock();
  }
}

void RemoteEvents::upload(Duration within) {
  // rclone refuses files that change while it reads them.
  const fs::path copies = folder_ + ".copies";
  std::error_code error;
  fs::create_directories(copies, error);
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path name = entry->path().filename();
    std::error_code failed;
    // Only what has changed: rclone compares size and time.
    fs::copy_file(entry->path(), copies / name, fs::copy_options::update_existing, failed);
    if (!failed) names.push_back(name.string());
  }
  const absl::Status status =
      ObjectStore({.within = within, .warn = nullptr}).upload(copies.string(), names, url_);
  if (!status.ok() && !std::exchange(failed_, true))
    std::cerr << "warning: enable_tensorboard: " << std::string(status.message()) << std::endl;
  if (status.ok()) failed_ = false;
}

}  // namespace muster::trainer
