#include "trainer_core/startup/uncaught.h"

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <exception>

#include "common/process/exit_code.h"

namespace muster::trainer {
namespace {

const char* program_name = "";

iovec piece_of(const char* text) { return {const_cast<char*>(text), std::strlen(text)}; }

// Ends the process. Allocates nothing, because there may be no memory left.
[[noreturn]] void end_now(const char* what) {
  const std::array pieces = {piece_of(program_name), piece_of(": "), piece_of(what),
                             piece_of("\n")};
  (void)!writev(STDERR_FILENO, pieces.data(), pieces.size());
  _exit(to_int(ExitCode::kFailure));
}

[[noreturn]] void end_by_exception() {
  const std::exception_ptr thrown = std::current_exception();
  if (!thrown) end_now("std::terminate() was called");
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& e) {
    end_now(e.what());
  } catch (...) {
    end_now("an exception of an unknown kind");
  }
}

}  // namespace

void end_at_uncaught_exceptions(const char* program) {
  program_name = program;
  std::set_terminate(end_by_exception);
}

}  // namespace muster::trainer
