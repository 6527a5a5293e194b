// Captures from streams, and graphs of what was captured. Each capture is of one stream, as those of cudaStreamCaptureModeThreadLocal.
#include "graphs.h"

#include <memory>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#include "device_memory.h"
#include "stream.h"
#include "trainer_core/ops/cuda/cuda_check.h"
#include "trainer_core/ops/cuda/graphs.h"

namespace emulated {

struct Graph {
  std::vector<Work> calls;
};
struct Executable {
  std::shared_ptr<const std::vector<Work>> calls;
};

Graphs& graphs() {
  static auto* const all = new Graphs;
  return *all;
}

Capture*& own_capture() {
  thread_local Capture* capture = nullptr;
  return capture;
}

cudaError_t outside_of_captures() {
  Capture* const capture = own_capture();
  return capture == nullptr ? cudaSuccess : capture->fail(cudaErrorStreamCaptureUnsupported);
}

bool captures(Stream* stream) { return stream != nullptr && stream->capture() != nullptr; }

cudaError_t record(Stream* stream, Work work) {
  const auto capture = stream->capture();
  if (capture.get() != own_capture())
    fail("a stream is told something while another thread captures it");
  if (capture->error != cudaSuccess) return cudaErrorStreamCaptureInvalidated;
  capture->calls.push_back(std::move(work));
  return cudaSuccess;
}

namespace {

void expect_same(const Executable& graph, const Graph& now) {
  const std::vector<Work>& before = *graph.calls;
  if (before.size() != now.calls.size())
    fail("a graph has more calls than what it stands for, or fewer");
  for (size_t i = 0; i < before.size(); ++i)
    if (before[i].what != now.calls[i].what)
      fail("a graph has another call, or one with other arguments, than what it stands for");
}

}  // namespace
}  // namespace emulated

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (emulated::graphs().are_refused) return cudaErrorNotSupported;
  if (stream == nullptr || stream->capture() != nullptr || emulated::own_capture() != nullptr)
    return cudaErrorStreamCaptureUnsupported;
  if (mode != cudaStreamCaptureModeThreadLocal) return cudaErrorInvalidValue;
  auto capture = std::make_shared<emulated::Capture>();
  emulated::own_capture() = capture.get();
  stream->set_capture(std::move(capture));
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  const auto capture = stream->capture();
  if (capture == nullptr) return cudaErrorInvalidValue;
  if (capture.get() != emulated::own_capture()) return cudaErrorStreamCaptureWrongThread;
  emulated::own_capture() = nullptr;
  stream->set_capture(nullptr);
  if (capture->error == cudaErrorStreamCaptureUnjoined) return capture->error;
  if (capture->error != cudaSuccess) return cudaErrorStreamCaptureInvalidated;
  *graph = new emulated::Graph{std::move(capture->calls)};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long) {
  if (const cudaError_t error = emulated::outside_of_captures()) return error;
  *executable =
      new emulated::Executable{std::make_shared<const std::vector<emulated::Work>>(graph->calls)};
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream) {
  return emulated::captures(stream) ? stream->capture()->fail(cudaErrorStreamCaptureUnsupported)
                                    : cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (emulated::captures(stream)) return stream->capture()->fail(cudaErrorStreamCaptureUnsupported);
  ++emulated::graphs().launches;
  emulated::do_later(stream, [calls = executable->calls] {
    for (const emulated::Work& call : *calls) call.run();
  });
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  ++emulated::graphs().destroyed;
  return delete executable, cudaSuccess;
}

namespace muster::trainer::cuda {

void before_launch(cudaGraphExec_t graph, cudaStream_t stream, absl::FunctionRef<void()> calls) {
  if (!emulated::graphs().are_compared) return;
  cudaGraph_t now = nullptr;
  MUSTER_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  calls();
  MUSTER_CUDA_CHECK(cudaStreamEndCapture(stream, &now));
  emulated::expect_same(*graph, *now);
  MUSTER_CUDA_CHECK(cudaGraphDestroy(now));
}

}  // namespace muster::trainer::cuda
