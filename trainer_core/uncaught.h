// Ends a rank on an uncaught exception, which means a lack of memory or a fault of the program.
#pragma once

namespace muster::trainer {

// From now on an uncaught exception on any thread ends the process at once with kFailure and a line
// on standard error: "muster-trainer: std::bad_alloc". The stack is not unwound: destructors would
// wait for threads that wait for peers, which wait for this rank, so its death would be detected
// seconds later. `program` outlives the process. Called once, at the process's start.
void end_at_uncaught_exceptions(const char* program);

}  // namespace muster::trainer
