#include "cli/interrupts.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "common/errno_status.h"

namespace muster::cli {
namespace {

sigset_t leaving_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signo : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signo);
  return signals;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Interrupts>> Interrupts::block() {
  const sigset_t signals = leaving_signals();
  if (const int error = pthread_sigmask(SIG_BLOCK, &signals, nullptr); error != 0) {
    return errno_status(error, "blocking signals");
  }
  const int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return errno_status(errno, "signalfd");
  return std::unique_ptr<Interrupts>(new Interrupts(fd));
}

// The signals stay as they are: one that comes while we leave has nothing more to do.
Interrupts::~Interrupts() { close(fd_); }

int Interrupts::take() {
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) ++count_;
  return count_;
}

void Interrupts::release() {
  take();
  const sigset_t signals = leaving_signals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

}  // namespace muster::cli
