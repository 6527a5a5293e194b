// Runs of calls as CUDA graphs (ops/replay.h). The first time a run is called as it is: libraries choose algorithms and CUDA loads kernels then, neither
// of which a capture allows. The second time its calls are captured from the operations' stream, and from then on one launch stands for
// them. What cannot be captured is called each time, and a note says why.
//
// Captures are of cudaStreamCaptureModeThreadLocal: a rank's other threads allocate, copy and ask for events meanwhile, which Global would refuse
// them, and with Relaxed a call that does not belong in a run would go unnoticed.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <type_traits>

#include "trainer_core/ops/cuda/library_answer.h"
#include "trainer_core/ops/replay.h"

namespace muster::trainer::cuda {

class Graphs final : public Replayer {
 public:
  // Of runs on `stream` of `device`; the notes outlive it.
  Graphs(int device, cudaStream_t stream, LibraryNotes& notes)
      : device_(device), stream_(stream), notes_(notes) {}

  void replay(const ReplayKey& key, absl::FunctionRef<void()> calls) override;
  void leave_out(const std::string& what, const std::string& why) override;

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { (void)cudaGraphExecDestroy(graph); }
  };
  using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy>;
  struct Run {
    bool is_captured = false;
    Graph graph{};  // null: it was not to be captured
  };

  // Null where it cannot be; nothing was computed in either case.
  Graph capture(absl::FunctionRef<void()> calls);

  // A model of a hundred layers has some five hundred runs; of an interleaved pipeline's slots there are more. What comes behind these is
  // called each time.
  static constexpr size_t kRunsMax = 2048;

  const int device_;
  const cudaStream_t stream_;
  LibraryNotes& notes_;
  std::map<ReplayKey, Run> runs_;
};

// Before each launch of a graph. Nothing; on the tests' emulated device what `calls` calls is compared with what the graph has.
void before_launch(cudaGraphExec_t graph, cudaStream_t stream, absl::FunctionRef<void()> calls);

}  // namespace muster::trainer::cuda
