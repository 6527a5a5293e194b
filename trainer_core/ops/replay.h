// A run is a sequence of operation calls that each pass repeats with the same arguments. A backend
// can replay a run with less overhead than its calls: CUDA graphs launch many kernels by one call.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include <absl/functional/function_ref.h>

namespace muster::trainer {

// Identifies a run of a replayer.
using ReplayKey = std::array<uint32_t, 4>;

// Records and replays runs. Called only on the thread that calls the operations. Requires that the
// operations, and the memory that runs use, outlive the replayer.
class Replayer {
 public:
  virtual ~Replayer() = default;

  // Runs `calls`, directly or from a recording. Requires that `calls` makes the same calls with the
  // same arguments each time for the same key; only tensor contents may differ. Apart from calls
  // that are passed to call_unrecorded(), `calls` may not wait, and may not copy between the
  // backend's memory and other memory.
  virtual void replay(const ReplayKey& key, absl::FunctionRef<void()> calls) = 0;
  // Inserts a call that cannot be recorded, such as a collective, at this point of a run: each
  // replay calls it. `call` must own copies of its arguments; it may be called before this function
  // returns, later, or never. Outside of a run, it is called at once.
  virtual void call_unrecorded(const std::function<void()>& call) = 0;
  // Adds a note that `what` is not replayed, with the reason `why`. Ops::take_notes() returns the
  // note once.
  virtual void leave_out(const std::string& what, const std::string& why) = 0;
};

}  // namespace muster::trainer
