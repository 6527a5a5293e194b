// Runs of calls as CUDA graphs (ops/replay.h). The first time, a run's calls are executed directly:
// libraries choose algorithms and CUDA loads kernels then, and a capture allows neither. The second
// time, its operations are captured from their stream, as one graph per stretch between the calls
// that are set apart. From then on the graphs are launched instead. A run that cannot be captured
// is called each time, and a note gives the reason.
//
// Captures use cudaStreamCaptureModeThreadLocal. Meanwhile the other threads of a rank allocate,
// copy and query events, which Global would forbid; and Relaxed would not detect calls that do not
// belong in a run.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "trainer_core/ops/cuda/library_answer.h"
#include "trainer_core/ops/replay.h"

namespace muster::trainer::cuda {

struct DestroyGraph {
  void operator()(cudaGraphExec_t graph) const { (void)cudaGraphExecDestroy(graph); }
};
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraph>;

// Operations, followed by a call that is set apart; either may be missing.
struct RunPart {
  Graph graph{};
  std::function<void()> apart{};
};
using RunParts = std::vector<RunPart>;

class Graphs final : public Replayer {
 public:
  // Replays runs on `stream` of `device`. Requires: `notes` outlives it.
  Graphs(int device, cudaStream_t stream, LibraryNotes& notes)
      : device_(device), stream_(stream), notes_(notes) {}

  void replay(const ReplayKey& key, absl::FunctionRef<void()> calls) override;
  void set_apart(const std::function<void()>& call) override;
  void leave_out(const std::string& what, const std::string& why) override;

  // See fails_capture() in cuda_check.h.
  static bool fail_capture(const std::string& error);

 private:
  class Capture;
  struct Run {
    bool is_captured = false;
    RunParts parts{};  // empty: could not be captured
  };

  // Captures the operations of `calls` without executing them; returns no parts if they cannot be
  // captured.
  RunParts capture(absl::FunctionRef<void()> calls);

  // Bound on the captured runs. A model of a hundred layers has some five hundred; the slots of an
  // interleaved pipeline have more. Runs beyond the bound are called each time.
  static constexpr size_t kRunsMax = 2048;

  const int device_;
  const cudaStream_t stream_;
  LibraryNotes& notes_;
  std::map<ReplayKey, Run> runs_;
  Capture* capture_ = nullptr;  // the capture in progress
};

// Returns whether each run is captured again and compared before it is replayed. True only on the
// tests' emulated device; in the product, uncompared_graphs.cc returns false.
bool compares_runs();
void compare_runs(const RunParts& captured, const RunParts& now);

}  // namespace muster::trainer::cuda
