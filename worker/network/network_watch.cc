#include "worker/network/network_watch.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace muster::worker {
namespace {

// The time for which the destructor waits for the thread; a reading takes milliseconds.
constexpr Duration kFarewell = std::chrono::milliseconds(200);
// A reading that takes longer is not waited for.
constexpr Duration kSlowReading = std::chrono::seconds(1);

}  // namespace

// Shared with the thread, which may outlive the watch.
struct NetworkWatch::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  NetworkReport report;
  uint64_t readings = 0;  // number of readings that have ended
  uint64_t wanted = 0;    // number of readings that callers have requested
  bool stop = false;
  bool ended = false;

  // Requires the lock. A reading that runs may have read a device before the call.
  uint64_t want_another() {
    wanted = std::max(wanted, readings + (report.reading_since ? 2 : 1));
    changed.notify_all();
    return wanted;
  }
};

// The thread's own state. Never reads with the lock held.
class NetworkWatch::Loop {
 public:
  Loop(std::shared_ptr<Shared> shared, NetworkWatchOptions options)
      : shared_(std::move(shared)), options_(std::move(options)) {}

  void run() {
    std::unique_lock lock(shared_->mutex);
    while (!shared_->stop) {
      shared_->report.reading_since = monotonic_now();
      lock.unlock();
      const std::vector<std::string> news = read();
      lock.lock();
      // After a reading that hung, the program may be ending.
      if (shared_->stop) break;
      lock.unlock();
      if (options_.on_event)
        for (const std::string& text : news) options_.on_event(text);
      lock.lock();
      shared_->changed.wait_for(lock, options_.interval, [&] {
        return shared_->stop || shared_->wanted > shared_->readings;
      });
    }
    shared_->ended = true;
    shared_->changed.notify_all();
  }

 private:
  // Returns the texts of new events.
  std::vector<std::string> read() {
    auto devices = read_network_devices(options_.selection, [this](const std::string& name) {
      const std::lock_guard lock(shared_->mutex);
      shared_->report.reading = name;
    });
    std::vector<std::string> news;
    const std::lock_guard lock(shared_->mutex);
    NetworkReport& report = shared_->report;
    report.reading_since.reset();
    report.reading.clear();
    if (devices.ok()) {
      for (const NetworkEvent& event : add_reading(report, *std::move(devices), monotonic_now()))
        news.push_back(network_event_text(event));
      error_.clear();
    } else if (std::string error(devices.status().message()); error != error_) {
      news.push_back(absl::StrCat("the devices cannot be read: ", error));
      error_ = std::move(error);
    }
    ++shared_->readings;
    shared_->changed.notify_all();
    return news;
  }

  const std::shared_ptr<Shared> shared_;
  const NetworkWatchOptions options_;
  std::string error_;  // the error of the newest reading
};

NetworkWatch::NetworkWatch(NetworkWatchOptions options) : shared_(std::make_shared<Shared>()) {
  auto loop = std::make_unique<Loop>(shared_, std::move(options));
  const auto run = [](void* argument) -> void* {
    std::unique_ptr<Loop>(static_cast<Loop*>(argument))->run();
    return nullptr;
  };
  pthread_t thread{};
  if (pthread_create(&thread, nullptr, run, loop.get()) != 0) {
    shared_->report.reading_since = monotonic_now();  // no reading ever ends
    shared_->report.reading = "the thread that reads them";
    shared_->ended = true;
    return;
  }
  (void)loop.release();
  pthread_detach(thread);
}

NetworkWatch::~NetworkWatch() {
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, kFarewell, [&] { return shared_->ended; });
}

NetworkReport NetworkWatch::report() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->report;
}

void NetworkWatch::request() const {
  const std::lock_guard lock(shared_->mutex);
  shared_->want_another();
}

NetworkReport NetworkWatch::measure(Duration at_most) const {
  std::unique_lock lock(shared_->mutex);
  const auto since = shared_->report.reading_since;
  const bool is_slow = since && monotonic_now() - *since > kSlowReading;
  const uint64_t wanted = shared_->want_another();
  if (!is_slow)
    shared_->changed.wait_for(lock, at_most, [&] { return shared_->readings >= wanted; });
  return shared_->report;
}

}  // namespace muster::worker
