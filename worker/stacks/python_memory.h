// Reads the Python frames of a running CPython 3.11 from the memory of its process, without a
// program such as py-spy. Does not stop the process: a frame that changes while it is read may be
// missing or wrong, as in py-spy's mode that does not stop. The memory is untrusted: all counts,
// lengths and the time are bounded.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "common/time/time.h"
#include "worker/stacks/process_map.h"
#include "worker/stacks/python_frames.h"

namespace muster::worker {

// Returns the frames of all Python threads that were read by `deadline`. Returns Unimplemented for
// other versions of Python, Unavailable if the interpreter's data cannot be read or there are no
// frames in it, and DeadlineExceeded if no frame was read in time.
absl::StatusOr<PythonFrames> read_python_memory(pid_t pid, const ProcessMap& map, Instant deadline);

// Like read_python_memory(), for the interpreters of the _PyRuntime at the address `runtime`: the
// frames that were read by `deadline`, within bounds on their number and the size of their tables.
// Follows each address once: the lists of a program may be cycles.
PythonFrames read_python_threads(pid_t pid, uint64_t runtime, Instant deadline);

// Returns the line of the instruction `unit`, counted in units of two bytes, from the location
// table of a code object of CPython 3.11; 0: the table has no line for it.
int32_t line_of_instruction(std::string_view table, int32_t first_line, int64_t unit);

}  // namespace muster::worker
