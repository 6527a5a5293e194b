#include "trainer_core/base/mapped_read.h"

#include <csetjmp>
#include <csignal>
#include <mutex>
#include <utility>

namespace muster::trainer {
namespace {

struct Guard {
  const char* begin;
  const char* end;
  sigjmp_buf way_out;
};

// The read in progress on this thread; null: none.
thread_local Guard* guard = nullptr;
struct sigaction previous_action;

void on_bus_error(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const auto* address = static_cast<const char*>(info->si_addr);
  if (guard != nullptr && address >= guard->begin && address < guard->end)
    siglongjmp(guard->way_out, 1);
  // The signal has another cause: the instruction is repeated under the previous handler.
  sigaction(SIGBUS, &previous_action, nullptr);
}

void install_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  // siglongjmp() leaves the handler without a return, so the signal must not be blocked in the
  // handler.
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGBUS, &action, &previous_action);
}

}  // namespace

bool read_mapped(const void* data, size_t bytes, void (*body)(void*), void* context) {
  static std::once_flag installed;
  std::call_once(installed, install_handler);
  Guard here{static_cast<const char*>(data), static_cast<const char*>(data) + bytes, {}};
  Guard* const outer = guard;
  if (sigsetjmp(here.way_out, 0) != 0) {  // NOLINT(cert-err52-cpp): see on_bus_error
    guard = outer;
    return false;
  }
  guard = &here;
  body(context);
  guard = outer;
  return true;
}

}  // namespace muster::trainer
