// The texts of Python frames, for tests.
#pragma once

#include <string>
#include <vector>

#include "common/stacks/stack_frame.h"

namespace muster::worker {

inline std::vector<std::string> frame_texts(const std::vector<StackFrame>& frames) {
  std::vector<std::string> result;
  for (const StackFrame& frame : frames) result.push_back(frame.text);
  return result;
}

}  // namespace muster::worker
