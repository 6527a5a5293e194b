// A few threads for work that may block or takes long, such as reading files, so that the threads
// that serve clients do not wait. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

namespace muster::daemon {

class WorkPool {
 public:
  // `tasks_max`: the maximum number of tasks that run or wait.
  WorkPool(size_t threads, size_t tasks_max) : tasks_max_(tasks_max), pool_(threads) {}
  ~WorkPool() { stop(); }
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Runs `task` on one of the threads. Returns false, and drops the task, if there are tasks_max.
  template <class F>
  bool post(F&& task) {
    if (++tasks_ > tasks_max_) {
      --tasks_;
      return false;
    }
    add_counted(std::forward<F>(task));
    return true;
  }

  // The same for a task that must not be dropped, such as the answer to a call that has been
  // carried out. The caller bounds the number of these tasks.
  template <class F>
  void post_always(F&& task) {
    ++tasks_;
    add_counted(std::forward<F>(task));
  }

  // Waits for the tasks that run, and drops those that wait and all later ones.
  void stop() {
    pool_.stop();
    pool_.join();
  }

 private:
  template <class F>
  void add_counted(F&& task) {
    // The count falls with the task, whether it ran or was dropped by stop().
    std::shared_ptr<void> counted(nullptr, [this](void*) { --tasks_; });
    boost::asio::post(
        pool_, [task = std::forward<F>(task), counted = std::move(counted)]() mutable { task(); });
  }

  const size_t tasks_max_;
  std::atomic<size_t> tasks_{0};
  boost::asio::thread_pool pool_;
};

}  // namespace muster::daemon
