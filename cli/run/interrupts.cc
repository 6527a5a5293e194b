#include "cli/run/interrupts.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "common/files/errno_status.h"
#include "daemon/process.h"

namespace muster::cli {

absl::StatusOr<std::unique_ptr<Interrupts>> Interrupts::block() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signo : daemon::leave_signals()) sigaddset(&signals, signo);
  if (const int error = pthread_sigmask(SIG_BLOCK, &signals, nullptr); error != 0) {
    return errno_status(error, "blocking signals");
  }
  const int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return errno_status(errno, "signalfd");
  return std::unique_ptr<Interrupts>(new Interrupts(fd, signals));
}

// Leaves the signals blocked: one that arrives during the exit needs no handling.
Interrupts::~Interrupts() { close(fd_); }

int Interrupts::take() {
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    // A closing terminal may send two SIGHUPs, which count as one request.
    if (info.ssi_signo != SIGHUP || requests_.count() == 0) requests_.add(monotonic_now());
  }
  return requests_.count();
}

void Interrupts::add_request() { requests_.add(monotonic_now()); }

void Interrupts::release() {
  take();
  pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
}

}  // namespace muster::cli
