// Frames of Python programs, read by py-spy if it is installed: it reads the interpreter's memory
// from outside, without stopping it, as our child process with a deadline. Nothing is injected and
// no shell is used.
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

// Frames by thread: "train.py:31 train_step", outermost first.
using PythonFrames = std::map<pid_t, std::vector<StackFrame>>;

// Returns whether the file is the CPython interpreter, as a library or as the program itself.
bool is_python_interpreter(std::string_view module_path);
bool runs_python(const ProcessMap& map);

class PySpy {
 public:
  // `program`: path of py-spy; empty: the one in PATH, if any.
  explicit PySpy(const std::string& program);

  // Returns NotFound, with how to install it, if there is no py-spy. Blocks until `deadline` at
  // most.
  absl::StatusOr<PythonFrames> dump(pid_t pid, Instant deadline) const;

 private:
  std::string program_;  // empty: there is none
};

// Parses the output of `py-spy dump --json`. Returns DataLoss for anything else.
absl::StatusOr<PythonFrames> parse_py_spy(std::string_view json);

// Replaces the interpreter's own frames in a thread's stack by its Python frames. Native frames
// after the last call out of the interpreter remain after them.
std::vector<StackFrame> with_python_frames(const std::vector<StackFrame>& native,
                                           const std::vector<StackFrame>& python,
                                           const std::vector<StackModule>& modules);

}  // namespace muster::worker
