// The place of a stack in the program itself, for the sentence of an incident. A pure function.
#pragma once

#include <string>

#include "common/stack_tree.h"

namespace muster::coordinator {

// The text of the innermost frame that is the program's own: not of the kernel, the C or C++
// library, a communication library, a framework or our trainer's machinery of collectives. Of
// frames whose names are not known yet, their modules decide. The innermost of all frames when
// there is no other; empty for an empty stack.
std::string source_of(const StackTree& tree, const StackTree::Class& stack);

}  // namespace muster::coordinator
