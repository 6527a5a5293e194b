// Captures from streams, and graphs of the captured work. Each capture covers one stream, as with
// cudaStreamCaptureModeThreadLocal.
#include "graphs.h"

#include <memory>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#include "device_memory.h"
#include "stream.h"
#include "trainer_core/ops/cuda/device/graphs.h"

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
    fail("work is enqueued on a stream that another thread captures");
  if (capture->error != cudaSuccess) return cudaErrorStreamCaptureInvalidated;
  capture->calls.push_back(std::move(work));
  return cudaSuccess;
}

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
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* count) {
  return *count = graph->calls.size(), cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long) {
  if (const cudaError_t error = emulated::outside_of_captures()) return error;
  *executable =
      new emulated::Executable{std::make_shared<const std::vector<emulated::Work>>(graph->calls)};
  emulated::graphs().held += 1 + static_cast<int64_t>(graph->calls.size());
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
  emulated::graphs().held -= 1 + static_cast<int64_t>(executable->calls->size());
  return delete executable, cudaSuccess;
}

namespace muster::trainer::cuda {

bool is_comparing_replays() { return emulated::graphs().are_compared; }

void compare_runs(const RunParts& captured, const RunParts& now) {
  if (captured.size() != now.size()) emulated::fail("a run has more parts than before, or fewer");
  for (size_t i = 0; i < now.size(); ++i) {
    const auto calls_of = [](const RunPart& part) {
      return part.graph == nullptr ? std::vector<emulated::Work>() : *part.graph->calls;
    };
    const auto before = calls_of(captured[i]), calls = calls_of(now[i]);
    if (before.size() != calls.size())
      emulated::fail("a graph has more or fewer calls than the run that it replaces");
    for (size_t j = 0; j < calls.size(); ++j)
      if (before[j].what != calls[j].what)
        emulated::fail(
            "a call or its arguments differ between a graph and the run that it replaces");
  }
}

}  // namespace muster::trainer::cuda
