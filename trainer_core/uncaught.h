// What becomes of a rank that throws what nobody catches, which is a lack of memory or a fault of the program.
#pragma once

namespace muster::trainer {

// From now on an exception that nobody catches, on any thread, ends the process at once with kFailure and a line on standard error:
// "muster-trainer: std::bad_alloc". Nothing is unwound: destructors would wait for threads that wait for peers, which wait for this
// rank, so its death would be known seconds later. `program` outlives the process. Once, at its start.
void end_at_uncaught_exceptions(const char* program);

}  // namespace muster::trainer
