// Runs a function in a process of its own and stops it at each of its file system calls, whichever
// of its threads makes it: the test decides what becomes of the call. By ptrace, so that nothing
// between the code and the kernel is another one than in production.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

struct FileCall {
  std::string_view name;  // of the system call
  std::string path;       // the first path, or that of the descriptor
  std::string to;         // the second path of a rename
  bool creates = false;   // an open that may make a file

  std::string text() const;
};

enum class Fate {
  kGoOn,
  kKill,     // SIGKILL to the whole process; the call does nothing
  kTear,     // of a write: half of it is written, then kKill. Others: kKill
  kShorten,  // of a write: half of it is written. Others: kGoOn
  kFail,     // the call does nothing and fails with `error`
};
struct Decision {
  Fate fate = Fate::kGoOn;
  int error = 0;
};

struct TracedEnd {
  bool killed = false;
  int exit_code = -1;           // when it was not
  std::vector<FileCall> calls;  // those that were seen, in order
};

// False where the kernel or a sandbox refuses ptrace, and on other processors than x86-64 and
// arm64.
bool can_trace();

// `body`'s result is the process's exit code. `decide` has the number of the call (from 0) and the
// call. The calling process has no other children and one thread.
TracedEnd run_traced(const std::function<int()>& body,
                     const std::function<Decision(size_t number, const FileCall& call)>& decide);

}  // namespace muster
