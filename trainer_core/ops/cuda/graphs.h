// Runs of calls as CUDA graphs (ops/replay.h). The first time a run is called as it is: libraries choose algorithms and CUDA loads kernels then, neither
// of which a capture allows. The second time its operations are captured from their stream, a graph for each stretch between what is set
// apart, and from then on launches stand for them. What cannot be captured is called each time, and a note says why.
//
// Captures are of cudaStreamCaptureModeThreadLocal: a rank's other threads allocate, copy and ask for events meanwhile, which Global would refuse
// them, and with Relaxed a call that does not belong in a run would go unnoticed.
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

// Operations, and what is set apart behind them; either may be missing.
struct RunPart {
  Graph graph{};
  std::function<void()> apart{};
};
using RunParts = std::vector<RunPart>;

class Graphs final : public Replayer {
 public:
  // Of runs on `stream` of `device`; the notes outlive it.
  Graphs(int device, cudaStream_t stream, LibraryNotes& notes)
      : device_(device), stream_(stream), notes_(notes) {}

  void replay(const ReplayKey& key, absl::FunctionRef<void()> calls) override;
  void set_apart(const std::function<void()>& call) override;
  void leave_out(const std::string& what, const std::string& why) override;

  // fails_capture() of cuda_check.h.
  static bool fail_capture(const std::string& error);

 private:
  class Capture;
  struct Run {
    bool is_captured = false;
    RunParts parts{};  // none: it was not to be captured
  };

  // What `calls` calls, none of which is done; none where it cannot be captured.
  RunParts capture(absl::FunctionRef<void()> calls);

  // A model of a hundred layers has some five hundred runs; of an interleaved pipeline's slots there are more. What comes behind these is
  // called each time.
  static constexpr size_t kRunsMax = 2048;

  const int device_;
  const cudaStream_t stream_;
  LibraryNotes& notes_;
  std::map<ReplayKey, Run> runs_;
  Capture* capture_ = nullptr;  // the one that is going on
};

// Whether each run is captured again before it is replayed, and compared. On the tests' emulated device alone: elsewhere the file of
// these two does nothing.
bool compares_runs();
void compare_runs(const RunParts& captured, const RunParts& now);

}  // namespace muster::trainer::cuda
