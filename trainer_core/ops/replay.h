// Runs of operations that a pass calls again and again with the same arguments, so that a backend may start each as one: CUDA graphs.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <absl/functional/function_ref.h>

namespace muster::trainer {

// What tells a run from the replayer's others.
using ReplayKey = std::array<uint32_t, 4>;

// One thread at a time, that of its operations, which outlive it; so does the memory that they work in.
class Replayer {
 public:
  virtual ~Replayer() = default;

  // Does what `calls` call of the operations, with `calls` or without it. With the same key they are the same calls of operations each time, to the last
  // argument: what differs are the numbers in tensors. They neither wait nor move anything between the backend's memory and memory that it
  // has not allocated.
  virtual void replay(const ReplayKey& key, absl::FunctionRef<void()> calls) = 0;
  // Somebody has decided that `what` is not replayed, because `why`: Ops::take_notes() has it once.
  virtual void leave_out(const std::string& what, const std::string& why) = 0;
};

}  // namespace muster::trainer
