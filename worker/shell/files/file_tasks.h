// Runs work on files on threads of its own instead of the event loop, because the threads may hang:
// a file system that does not respond blocks a thread in the kernel, and no signal ends it.
//
// Called on the event loop's thread only.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>

namespace muster::worker {

// The maximum numbers of tasks that run at once, and of tasks that hang. A thread that hangs
// occupies only its stack.
constexpr int kFileTasksMax = 8;
constexpr int kHungFileTasksMax = 64;

class FileTasks {
 public:
  class Task;

  explicit FileTasks(boost::asio::io_context& loop);
  // Does not wait for tasks that run; their `done` is not called.
  ~FileTasks();
  FileTasks(const FileTasks&) = delete;
  FileTasks& operator=(const FileTasks&) = delete;

  // Runs `work` on a thread, and then `done` on the loop. `work` must own everything that it uses.
  // If too many tasks hang, or no thread can be started, calls neither and returns null.
  std::shared_ptr<Task> run(std::function<void()> work, std::function<void()> done);
  // Abandons the task: if it runs, it counts as hung until it ends; its `done` is not called.
  void abandon(const std::shared_ptr<Task>& task);

 private:
  struct Door;
  bool start(const std::shared_ptr<Task>& task);
  void start_waiting();
  void on_end(const std::shared_ptr<Task>& task);

  const std::shared_ptr<Door> door_;
  std::deque<std::shared_ptr<Task>> waiting_;
  int running_ = 0;
  int hung_ = 0;
};

}  // namespace muster::worker
