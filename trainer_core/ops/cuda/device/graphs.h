// Replays runs of calls (ops/replay.h) as CUDA graphs. The first time, the calls of a run are
// executed directly, because libraries then choose algorithms and CUDA loads kernels, which a
// capture does not allow. The second time, the operations are captured from their stream; calls
// that cannot be recorded divide them into several graphs. From then on the graphs are launched
// instead. A run that cannot be captured is executed directly each time, and a note gives the
// reason.
//
// Captures use cudaStreamCaptureModeThreadLocal. The mode Global would forbid the allocations,
// copies and queries of events that other threads of the rank make during a capture; the mode
// Relaxed would not detect calls that do not belong in a run.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "trainer_core/ops/cuda/device/library_answer.h"
#include "trainer_core/ops/replay.h"

namespace muster::trainer::cuda {

// The deleter of Graph.
struct DestroyGraph {
  void operator()(cudaGraphExec_t graph) const { (void)cudaGraphExecDestroy(graph); }
};
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraph>;

// A part of a run: captured operations, followed by a call that cannot be recorded. Either may be
// missing.
struct RunPart {
  Graph graph{};
  std::function<void()> unrecorded{};
};
using RunParts = std::vector<RunPart>;

// The captured runs of one stream.
class Graphs final : public Replayer {
 public:
  // Replays runs on `stream` of `device`. Requires that `notes` outlives the object.
  Graphs(int device, cudaStream_t stream, LibraryNotes& notes)
      : device_(device), stream_(stream), notes_(notes) {}

  void replay(const ReplayKey& key, absl::FunctionRef<void()> calls) override;
  void call_unrecorded(const std::function<void()>& call) override;
  void leave_out(const std::string& what, const std::string& why) override;

  // See fails_capture() in cuda_check.h.
  static bool report_capture_error(const std::string& error);

 private:
  class Capture;
  struct Run {
    bool is_captured = false;
    RunParts parts{};  // empty: could not be captured
  };

  // Captures the operations of `calls` without executing them. Returns no parts if they cannot be
  // captured.
  RunParts capture(absl::FunctionRef<void()> calls);

  // Maximum number of captured runs. A model of a hundred layers has some five hundred runs; an
  // interleaved pipeline has more. Further runs are executed directly each time.
  static constexpr size_t kRunsMax = 2048;

  const int device_;
  const cudaStream_t stream_;
  LibraryNotes& notes_;
  std::map<ReplayKey, Run> runs_;
  Capture* capture_ = nullptr;  // the capture in progress
};

// Returns whether each run is captured again, and compared by compare_runs(), before a replay. True
// only on the emulated device of the tests; the product links uncompared_graphs.cc, which returns
// false.
bool is_comparing_replays();
void compare_runs(const RunParts& captured, const RunParts& now);

}  // namespace muster::trainer::cuda
