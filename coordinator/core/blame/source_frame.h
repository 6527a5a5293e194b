// Finds the source line of a stack that belongs to the user's program, for the sentence of an
// incident. A pure function.
#pragma once

#include <string>

#include "common/stacks/stack_tree.h"

namespace muster::coordinator {

// Returns the text of the innermost frame that belongs to the program itself. Frames of the kernel,
// the C or C++ library, a communication library, a framework, Python or an installed package, or
// the trainer's collectives do not belong to it. Frames without symbols are classified by their
// modules; below Python frames they belong to libraries. If all frames belong to libraries, returns
// the innermost frame of the package that is run as a program, or else the innermost frame;
// generated code is named as such. Returns an empty text for a stack without a known frame.
std::string source_of(const StackTree& tree, const StackTree::Class& stack);

}  // namespace muster::coordinator
