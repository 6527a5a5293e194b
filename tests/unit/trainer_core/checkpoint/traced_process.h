// Runs a function in a separate process and stops the process at each file system call of any of
// its threads; the test decides the fate of the call. It uses ptrace, so that the code under test
// and everything between it and the kernel are the same as in production.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

// A file system call.
struct FileCall {
  std::string_view name;  // name of the system call
  std::string path;       // first path, or path of the descriptor
  std::string to;         // the second path of a rename
  bool creates = false;   // an open that may create a file

  std::string text() const;
};

// The fate of a call.
enum class Fate {
  kContinue,
  kKill,     // the process gets SIGKILL; the call has no effect
  kTear,     // a write writes half of its bytes, then kKill; other calls: kKill
  kShorten,  // a write writes half of its bytes; other calls: kContinue
  kFail,     // the call has no effect and fails with `error`
};
// The decision of the test about a call.
struct Decision {
  Fate fate = Fate::kContinue;
  int error = 0;
};

// The end of the process.
struct TracedEnd {
  bool killed = false;
  int exit_code = -1;           // set if the process was not killed
  std::vector<FileCall> calls;  // the calls, in order
};

// Returns false if the kernel or a sandbox does not allow ptrace, and on processors other than
// x86-64 and arm64.
bool can_trace();

// Runs `body` in a process whose exit code is its result. `decide` receives the number of the call
// (from 0) and the call. Requires that the calling process has no other children and only one
// thread.
TracedEnd run_traced(const std::function<int()>& body,
                     const std::function<Decision(size_t number, const FileCall& call)>& decide);

}  // namespace muster
