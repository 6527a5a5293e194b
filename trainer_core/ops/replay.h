// Runs of calls that a pass makes again and again with the same arguments, so that a backend may start many of them as one: CUDA graphs.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include <absl/functional/function_ref.h>

namespace muster::trainer {

// What tells a run from the replayer's others.
using ReplayKey = std::array<uint32_t, 4>;

// One thread at a time, that of its operations, which outlive it; so does the memory that they work in.
class Replayer {
 public:
  virtual ~Replayer() = default;

  // Does what `calls` calls, by it or from memory: with the same key it makes the same calls each time, to the last argument, and what differs
  // are the numbers in tensors. But for what is set apart they are operations that do not wait, and that move nothing between the backend's memory and
  // memory which it has not allocated.
  virtual void replay(const ReplayKey& key, absl::FunctionRef<void()> calls) = 0;
  // Something else in the middle of a run, which may do anything at its place among the operations, each time the run is replayed: a collective. It
  // has copies of its arguments, and may be called before this returns, later or not at all. Outside of a run it is called at once.
  virtual void set_apart(const std::function<void()>& call) = 0;
  // Somebody has decided that `what` is not replayed, because `why`: Ops::take_notes() has it once.
  virtual void leave_out(const std::string& what, const std::string& why) = 0;
};

}  // namespace muster::trainer
