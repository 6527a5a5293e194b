#include "trainer_core/recovery/fence_watch.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace muster::trainer {

struct FenceWatch::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  bool stopped = false;
};

FenceWatch::FenceWatch(std::string directory, CheckpointOwner mine,
                       std::function<void(const std::string& why)> on_fenced, Duration interval)
    : shared_(std::make_shared<Shared>()) {
  thread_ = std::thread([shared = shared_, directory = std::move(directory), mine,
                         on_fenced = std::move(on_fenced), interval] {
    // An earlier run in this directory may have left an owner with a later attempt: the coordinator
    // of each `muster run` numbers its jobs from 1. Only an owner that comes later counts.
    const std::string at_start = owner_text(directory).value_or("");
    while (true) {
      {
        std::unique_lock lock(shared->mutex);
        if (shared->changed.wait_for(lock, interval, [&] { return shared->stopped; })) return;
      }
      const auto text = owner_text(directory);
      const std::optional<CheckpointOwner> owner =
          text.ok() ? parse_owner(*text) : std::optional<CheckpointOwner>();
      if (!owner || *text == at_start || owner->job != mine.job || owner->attempt <= mine.attempt)
        continue;
      const std::lock_guard lock(shared->mutex);
      if (!shared->stopped) on_fenced(std::string(not_the_owner(directory, owner, mine).message()));
      return;
    }
  });
}

FenceWatch::~FenceWatch() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopped = true;
  }
  shared_->changed.notify_all();
  thread_.join();
}

}  // namespace muster::trainer
