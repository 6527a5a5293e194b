// Replays runs of calls that a pass repeats with the same arguments, so that a backend can launch
// many of them as one: CUDA graphs.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include <absl/functional/function_ref.h>

namespace muster::trainer {

// Identifies a run among the replayer's runs.
using ReplayKey = std::array<uint32_t, 4>;

// One thread at a time, that of its operations. The operations and the memory that they use must
// outlive it.
class Replayer {
 public:
  virtual ~Replayer() = default;

  // Runs `calls`, directly or from a recording. With the same key it must make the same calls each
  // time, with the same arguments; only tensor contents may differ. Except for calls in
  // set_apart(), the operations may not wait, nor move data between the backend's memory and memory
  // that it has not allocated.
  virtual void replay(const ReplayKey& key, absl::FunctionRef<void()> calls) = 0;
  // Inserts any other call at this point of a run, on each replay: a collective. `call` must own
  // copies of its arguments, and may be called before this returns, later or never. Outside a run
  // it is called at once.
  virtual void set_apart(const std::function<void()>& call) = 0;
  // Records that `what` is not replayed because of `why`: Ops::take_notes() returns it once.
  virtual void leave_out(const std::string& what, const std::string& why) = 0;
};

}  // namespace muster::trainer
