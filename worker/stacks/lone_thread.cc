#include "worker/stacks/lone_thread.h"

#include <pthread.h>
#include <signal.h>

#include <memory>
#include <utility>

namespace muster::worker {

bool start_lone_thread(std::function<void()> body) {
  auto owned = std::make_unique<std::function<void()>>(std::move(body));
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  const auto run = [](void* argument) -> void* {
    const std::unique_ptr<std::function<void()>> mine(
        static_cast<std::function<void()>*>(argument));
    (*mine)();
    return nullptr;
  };
  pthread_t thread{};
  const bool started = pthread_create(&thread, &attributes, run, owned.get()) == 0;
  if (started) static_cast<void>(owned.release());
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

}  // namespace muster::worker
