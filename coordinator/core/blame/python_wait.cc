#include "coordinator/core/blame/python_wait.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/text/python_frame.h"

namespace muster::coordinator {
namespace {

// The innermost Python frames that are searched: wrappers lie between a wait and the program.
constexpr int kFramesSearched = 6;

// A file below the folder of packages, and the part of a function's name. Empty: any function.
struct Place {
  std::string_view file;
  std::string_view function;
};
constexpr std::array<Place, 12> kCertain = {{
    {"torch/distributed/distributed_c10d.py", ""},
    {"torch/distributed/_functional_collectives.py", ""},
    {"torch/distributed/rendezvous.py", ""},
    {"torch/distributed/fsdp/", "wait"},
    {"torch/distributed/fsdp/", "foreach_"},
    {"torch/distributed/fsdp/", "finalize_backward"},
    {"torch/distributed/_composable/fsdp/", "wait"},
    {"torch/distributed/_composable/fsdp/", "foreach_"},
    {"torch/distributed/algorithms/join.py", ""},
    {"torch/nn/parallel/distributed.py", "_sync"},
    {"jax/experimental/multihost_utils.py", ""},
    {"jax/_src/distributed.py", ""},
}};
// DDP's Reducer::finalize_backward and FSDP's reductions run in the engine of the backward pass.
// JAX waits for a collective when the program reads a result.
constexpr std::array<Place, 5> kIfAsleep = {{
    {"torch/autograd/graph.py", "_engine_run_backward"},
    {"torch/autograd/__init__.py", "backward"},
    {"jax/_src/array.py", "_value"},
    {"jax/_src/array.py", "block_until_ready"},
    {"jax/_src/api.py", "block_until_ready"},
}};

template <size_t n>
bool is_in(std::string_view file, std::string_view function, const std::array<Place, n>& places) {
  return std::ranges::any_of(places, [&](const Place& place) {
    return file.starts_with(place.file) && function.find(place.function) != std::string_view::npos;
  });
}

}  // namespace

PythonWait python_wait_of(const StackTree& tree, const StackTree::Class& stack) {
  PythonWait wait = PythonWait::kNone;
  int searched = 0;
  for (size_t i = stack.frames.size(); i-- > 0 && searched < kFramesSearched;) {
    const StackFrame& frame = tree.frames()[stack.frames[i]];
    if (frame.module != kNoModule) continue;
    const PythonFrame python = python_frame_of(frame.text);
    if (python.file.empty()) continue;
    // A frame of the program itself: what it does is not known.
    if (!is_python_library(python.file)) break;
    ++searched;
    const std::string_view file = short_python_path(python.file);
    if (is_in(file, python.function, kCertain)) return PythonWait::kCertain;
    if (is_in(file, python.function, kIfAsleep)) wait = PythonWait::kIfAsleep;
  }
  return wait;
}

}  // namespace muster::coordinator
