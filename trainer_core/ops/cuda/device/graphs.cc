#include "trainer_core/ops/cuda/device/graphs.h"

#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/ops/cuda/device/cuda_check.h"

namespace muster::trainer::cuda {

// A capture in progress. During its life the stream records work instead of doing it, and the
// capture takes the errors of the thread's calls.
class Graphs::Capture {
 public:
  explicit Capture(cudaStream_t stream) : stream_(stream) {
    now_ = this;
    begin();
  }
  ~Capture() {
    if (is_open_) (void)end();
    // Clears CUDA's last error, so that no later caller takes it for its own.
    if (!error_.empty()) (void)cudaGetLastError();
    now_ = nullptr;
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Returns the calling thread's capture; null if there is none.
  static Capture* now() { return now_; }
  void fail(const std::string& error) {
    if (error_.empty()) error_ = error;
  }
  bool is_open() const { return is_open_; }            // false: the stream cannot be captured
  const std::string& error() const { return error_; }  // the first error; empty if none

  // Ends a part here. Also after an error: the rest of the run must not execute, either.
  void cut(const std::function<void()>& unrecorded) {
    parts_.push_back({end(), unrecorded});
    begin();
    MUSTER_CHECK(is_open_) << "in the middle of a run " << error_;
  }
  RunParts take() {
    parts_.push_back({end(), nullptr});
    return std::move(parts_);
  }

 private:
  void begin() {
    const cudaError_t error = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
    check(error, "cudaStreamBeginCapture");
    is_open_ = error == cudaSuccess;
  }
  // Returns the work captured since begin() and the device memory that it takes; null if there is
  // none. Afterwards the stream executes work again, whatever has failed.
  Graph end() {
    is_open_ = false;
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    if (graph == nullptr) return nullptr;
    size_t calls = 0;
    check(cudaGraphGetNodes(graph, nullptr, &calls), "cudaGraphGetNodes");
    cudaGraphExec_t executable = nullptr;
    if (calls > 0 && error_.empty()) {
      check(cudaGraphInstantiateWithFlags(&executable, graph, 0), "cudaGraphInstantiateWithFlags");
      if (executable != nullptr) check(cudaGraphUpload(executable, stream_), "cudaGraphUpload");
    }
    (void)cudaGraphDestroy(graph);
    return Graph(executable);
  }

  // Per thread, because MUSTER_CUDA_CHECK in every call below needs it and has no reference to the
  // graphs.
  static thread_local Capture* now_;

  const cudaStream_t stream_;
  bool is_open_ = false;
  std::string error_;
  RunParts parts_;
};
thread_local Graphs::Capture* Graphs::Capture::now_ = nullptr;

bool fails_capture(const std::string& error) { return Graphs::report_capture_error(error); }

bool Graphs::report_capture_error(const std::string& error) {
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
    run.parts = capture(calls);
  } else if (!run.parts.empty() && is_comparing_replays()) {
    compare_runs(run.parts, capture(calls));
  }
  if (run.parts.empty()) return calls();
  for (const RunPart& part : run.parts) {
    if (part.graph != nullptr) MUSTER_CUDA_CHECK(cudaGraphLaunch(part.graph.get(), stream_));
    if (part.unrecorded) part.unrecorded();
  }
}

void Graphs::call_unrecorded(const std::function<void()>& call) {
  if (capture_ == nullptr) return call();
  capture_->cut(call);
}

void Graphs::leave_out(const std::string& what, const std::string& why) {
  notes_.add(absl::StrCat("no CUDA graphs of ", what, ": ", why));
}

RunParts Graphs::capture(absl::FunctionRef<void()> calls) {
  MUSTER_CUDA_CHECK(cudaSetDevice(device_));
  Capture capture(stream_);
  RunParts parts;
  if (capture.is_open()) {
    capture_ = &capture;
    calls();
    capture_ = nullptr;
    parts = capture.take();
  }
  if (capture.error().empty()) return parts;
  leave_out("some calls", capture.error());
  return {};
}

}  // namespace muster::trainer::cuda
