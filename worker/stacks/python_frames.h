// Frames of Python programs, read by the program py-spy if it is installed. py-spy runs as our
// child process with a deadline, and reads the interpreter's memory from outside, without stopping
// it. No code is injected into the program, and no shell is started.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "common/files/user_rights.h"
#include "common/stacks/stack_frame.h"
#include "common/time/time.h"
#include "worker/stacks/process_map.h"

namespace muster::worker {

// Frames by thread id, such as "/home/u/train.py:31 train_step", outermost first.
using PythonFrames = std::map<pid_t, std::vector<StackFrame>>;

// Returns whether the file is the CPython interpreter, either as a library or as an executable.
bool is_python_interpreter(std::string_view module_path);
// Returns whether the process has mapped a CPython interpreter.
bool runs_python(const ProcessMap& map);

// Runs py-spy.
class PySpy {
 public:
  // `program`: path of py-spy; empty: py-spy in PATH, if there is one.
  explicit PySpy(const std::string& program);

  // Returns the Python frames of a process. Returns NotFound, with instructions to install py-spy,
  // if there is none. Blocks until `deadline` at most. `user`: the user of py-spy, which opens
  // files that the process names; nullopt: this process's.
  absl::StatusOr<PythonFrames> dump(pid_t pid, Instant deadline,
                                    const std::optional<UserIds>& user) const;

 private:
  std::string program_;  // path of py-spy; empty: there is none
};

// Parses the output of `py-spy dump --json`. Returns DataLoss for other text.
absl::StatusOr<PythonFrames> parse_py_spy(std::string_view json);

// Returns a thread's stack in which the Python frames replace the interpreter's own native frames.
// Native frames that the interpreter has called last, such as a C extension's, follow the Python
// frames.
std::vector<StackFrame> with_python_frames(const std::vector<StackFrame>& native,
                                           const std::vector<StackFrame>& python,
                                           const std::vector<StackModule>& modules);

}  // namespace muster::worker
