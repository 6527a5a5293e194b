// MUSTER_CHECK(condition) << "context" checks an invariant of our own code in every build. If the
// condition is false, the file, line, condition and context go to stderr and the process aborts;
// the coordinator then restarts the job. Never used for outside input, which gets a Status.
#pragma once

#include <cstdlib>
#include <iostream>
#include <sstream>

namespace muster::trainer::internal {

class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition) {
    message_ << file << ':' << line << ": check failed: " << condition << ' ';
  }
  [[noreturn]] ~CheckFailure() {
    std::cerr << message_.str() << std::endl;
    std::abort();
  }
  std::ostream& stream() { return message_; }

 private:
  std::ostringstream message_;
};

// Gives the two branches of MUSTER_CHECK's conditional expression the same type.
struct Voidify {
  void operator&(std::ostream&) {}
};

}  // namespace muster::trainer::internal

// NOLINTBEGIN(bugprone-macro-parentheses): callers append << to the expression.
#define MUSTER_CHECK(condition)                  \
  (condition)                                    \
      ? static_cast<void>(0)                     \
      : ::muster::trainer::internal::Voidify() & \
            ::muster::trainer::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()
// NOLINTEND(bugprone-macro-parentheses)
