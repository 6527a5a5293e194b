// Ends a rank at an uncaught exception, which means that memory is exhausted or that the program
// has a bug.
#pragma once

namespace muster::trainer {

// Makes an uncaught exception on any thread end the process at once with kFailure and a line on
// standard error: "muster-trainer: std::bad_alloc". The stack is not unwound, because destructors
// would wait for threads that wait for peers, which wait for this rank; peers would then
// detect its end seconds later. `program` must live until the process ends. Called once, at the
// start of the process.
void end_at_uncaught_exceptions(const char* program);

}  // namespace muster::trainer
