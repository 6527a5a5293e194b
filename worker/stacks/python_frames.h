// Frames of Python programs, by py-spy where it is installed: it reads the interpreter's memory from outside, without stopping it, as a
// child of ours with a deadline. Nothing is injected and no shell is involved.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "common/stack_frame.h"
#include "common/time.h"
#include "worker/stacks/process_map.h"

namespace muster::worker {

// By thread: "train.py:31 train_step", outermost first.
using PythonFrames = std::map<pid_t, std::vector<StackFrame>>;

// Whether this file is CPython's interpreter, a library or the program itself.
bool is_python_interpreter(std::string_view module_path);
bool runs_python(const ProcessMap& map);

class PySpy {
 public:
  // `program`: its path; empty: the one in PATH, if any.
  explicit PySpy(const std::string& program);

  // NotFound says how to install it. Blocks until `deadline` at most.
  absl::StatusOr<PythonFrames> dump(pid_t pid, Instant deadline) const;

 private:
  std::string program_;  // empty: there is none
};

// Of what `py-spy dump --json` prints. DataLoss: it is something else.
absl::StatusOr<PythonFrames> parse_py_spy(std::string_view json);

// A thread's stack with its Python frames in place of the interpreter's own: those of C from the last call out of the interpreter
// on stay behind them.
std::vector<StackFrame> with_python_frames(const std::vector<StackFrame>& native,
                                           const std::vector<StackFrame>& python,
                                           const std::vector<StackModule>& modules);

}  // namespace muster::worker
