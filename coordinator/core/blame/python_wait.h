// Recognizes Python stacks that wait for other ranks. Pure.
#pragma once

#include "common/stacks/stack_tree.h"

namespace muster::coordinator {

// The wait for other ranks that the Python frames of a thread show.
enum class PythonWait {
  kNone,
  kIfAsleep,  // a backward pass or a read of a result: a wait only if the thread sleeps
  kCertain,   // a collective, a barrier or a rendezvous
};

// Returns the wait that the innermost Python frames of the stack show. Does not depend on symbols.
PythonWait python_wait_of(const StackTree& tree, const StackTree::Class& stack);

}  // namespace muster::coordinator
