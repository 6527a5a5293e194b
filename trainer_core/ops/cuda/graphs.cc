#include "trainer_core/ops/cuda/graphs.h"

#include <absl/strings/str_cat.h>

#include "trainer_core/ops/cuda/cuda_check.h"

namespace muster::trainer::cuda {
namespace {

// While it lives what the stream is told is recorded and not done, and errors of the thread's calls are kept here.
class Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    now_ = this;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    is_open_ = error_.empty();
  }
  ~Capture() {
    end();
    if (graph_ != nullptr) (void)cudaGraphDestroy(graph_);
    // Whoever asks CUDA for its newest error would take it for his own.
    if (!error_.empty()) (void)cudaGetLastError();
    now_ = nullptr;
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // The calling thread's; null: it captures nothing.
  static Capture* now() { return now_; }
  void fail(const std::string& error) {
    if (error_.empty()) error_ = error;
  }
  const std::string& error() const { return error_; }  // the first; empty: none

  // Whatever has failed, the stream does what it is told again.
  void end() {
    if (!is_open_) return;
    is_open_ = false;
    check(cudaStreamEndCapture(stream_, &graph_), "cudaStreamEndCapture");
  }
  // Of what was captured, with the device's memory that it takes.
  cudaGraphExec_t instantiate() const {
    cudaGraphExec_t graph = nullptr;
    check(cudaGraphInstantiateWithFlags(&graph, graph_, 0), "cudaGraphInstantiateWithFlags");
    if (graph != nullptr) check(cudaGraphUpload(graph, stream_), "cudaGraphUpload");
    return graph;
  }

 private:
  static thread_local Capture* now_;

  const cudaStream_t stream_;
  bool is_open_ = false;
  cudaGraph_t graph_ = nullptr;
  std::string error_;
};
thread_local Capture* Capture::now_ = nullptr;

}  // namespace

bool fails_capture(const std::string& error) {
  Capture* const capture = Capture::now();
  if (capture == nullptr) return false;
  capture->fail(error);
  return true;
}

void Graphs::replay(const ReplayKey& key, absl::FunctionRef<void()> calls) {
  const auto found = runs_.find(key);
  if (found == runs_.end()) {
    if (runs_.size() < kRunsMax) {
      runs_.try_emplace(key);
    } else {
      leave_out(absl::StrCat("more than ", kRunsMax, " runs of calls"), "each takes memory");
    }
    return calls();
  }
  Run& run = found->second;
  if (!run.is_captured) {
    run.is_captured = true;
    run.graph = capture(calls);
  } else if (run.graph != nullptr) {
    before_launch(run.graph.get(), stream_, calls);
  }
  if (run.graph == nullptr) return calls();
  MUSTER_CUDA_CHECK(cudaGraphLaunch(run.graph.get(), stream_));
}

void Graphs::leave_out(const std::string& what, const std::string& why) {
  notes_.add(absl::StrCat("no CUDA graphs of ", what, ": ", why));
}

Graphs::Graph Graphs::capture(absl::FunctionRef<void()> calls) {
  MUSTER_CUDA_CHECK(cudaSetDevice(device_));
  Capture capture(stream_);
  if (capture.error().empty()) calls();
  capture.end();
  Graph graph;
  if (capture.error().empty()) graph.reset(capture.instantiate());
  if (capture.error().empty()) return graph;
  leave_out("some calls", capture.error());
  return nullptr;
}

}  // namespace muster::trainer::cuda
