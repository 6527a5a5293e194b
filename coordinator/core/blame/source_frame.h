// Finds the source line of a stack that belongs to the user's program, for the sentence of an
// incident. A pure function.
#pragma once

#include <string>

#include "common/stack_tree.h"

namespace muster::coordinator {

// Returns the text of the innermost frame of the program itself: not of the kernel, the C or C++
// library, a communication library, a framework, or the trainer's collectives. Frames without
// symbols are classified by their modules. If all frames belong to libraries: the innermost frame,
// with words for generated code. Empty for a stack without a known frame.
std::string source_of(const StackTree& tree, const StackTree::Class& stack);

}  // namespace muster::coordinator
