#include "worker/shell/files/file_tasks.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include <boost/asio/post.hpp>

#include "worker/stacks/lone_thread.h"

namespace muster::worker {

class FileTasks::Task {
 public:
  std::function<void()> work;
  std::function<void()> done;
  bool is_running = false;
  bool is_abandoned = false;
};

// The way back to the loop, which may be gone when a task ends.
struct FileTasks::Door {
  std::mutex mutex;
  boost::asio::io_context* loop = nullptr;
};

FileTasks::FileTasks(boost::asio::io_context& loop) : door_(std::make_shared<Door>()) {
  door_->loop = &loop;
}

FileTasks::~FileTasks() {
  const std::lock_guard lock(door_->mutex);
  door_->loop = nullptr;
}

std::shared_ptr<FileTasks::Task> FileTasks::run(std::function<void()> work,
                                                std::function<void()> done) {
  if (hung_ >= kHungFileTasksMax) return nullptr;
  auto task = std::make_shared<Task>();
  task->work = std::move(work);
  task->done = std::move(done);
  if (running_ >= kFileTasksMax) {
    waiting_.push_back(task);
    return task;
  }
  return start(task) ? task : nullptr;
}

bool FileTasks::start(const std::shared_ptr<Task>& task) {
  const bool started = start_lone_thread([this, task, door = door_] {
    task->work();
    const std::lock_guard lock(door->mutex);
    if (door->loop != nullptr) boost::asio::post(*door->loop, [this, task] { on_end(task); });
  });
  task->is_running = started;
  if (started) ++running_;
  return started;
}

void FileTasks::abandon(const std::shared_ptr<Task>& task) {
  if (task == nullptr || task->is_abandoned) return;
  task->is_abandoned = true;
  task->done = nullptr;
  if (!task->is_running) {
    std::erase(waiting_, task);
    return;
  }
  --running_;
  ++hung_;
  start_waiting();
}

void FileTasks::on_end(const std::shared_ptr<Task>& task) {
  --(task->is_abandoned ? hung_ : running_);
  if (const auto done = std::move(task->done)) done();
  start_waiting();
}

void FileTasks::start_waiting() {
  while (running_ < kFileTasksMax && !waiting_.empty()) {
    // Without a thread the task waits for the end of another one, or for its owner's deadline.
    if (!start(waiting_.front())) return;
    waiting_.pop_front();
  }
}

}  // namespace muster::worker
