// cuDNN's attention through cudnn-frontend, with cuDNN itself opened by dlopen. The graphs of a
// shape are built when it first occurs, which takes a fraction of a second, and retained. The
// frontend throws if a function is missing: no exception leaves this file.
//
// The frontend also opens a CUDA runtime, libcudart.so.12 or .13, if
// NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING is defined. It throws if it finds neither or both
// (github.com/NVIDIA/cudnn-frontend/issues/211). This process has a statically linked runtime. The
// frontend gets that one through replacements of dlopen and dlsym in its header.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <string_view>

namespace muster::trainer::cuda {
namespace {

// The address of this variable is the handle of the statically linked runtime.
char runtime_of_process = 0;

void* open_for_frontend(const char* name, int mode) {
  const std::string_view library = name;
  // The other of the two names that the frontend tries.
  if (library == "libcudart.so.12") return nullptr;
  return library == "libcudart.so.13" ? &runtime_of_process : ::dlopen(name, mode);
}

// Resolves the functions that the frontend calls for attention.
void* find_for_frontend(void* library, const char* name) {
  if (library != &runtime_of_process) return ::dlsym(library, name);
  const std::string_view function = name;
  if (function == "cudaGetDevice") return reinterpret_cast<void*>(&cudaGetDevice);
  if (function == "cudaGetDeviceProperties")
    return reinterpret_cast<void*>(&cudaGetDeviceProperties);
  if (function == "cudaGetErrorString") return reinterpret_cast<void*>(&cudaGetErrorString);
  if (function == "cudaMemcpyAsync") return reinterpret_cast<void*>(&cudaMemcpyAsync);
  if (function == "cudaMemsetAsync") return reinterpret_cast<void*>(&cudaMemsetAsync);
  return nullptr;
}

}  // namespace
}  // namespace muster::trainer::cuda

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define dlopen ::muster::trainer::cuda::open_for_frontend
#define dlsym ::muster::trainer::cuda::find_for_frontend
#include <cudnn_frontend.h>
#undef dlopen
#undef dlsym

#include <array>
#include <bit>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/check.h"
#include "trainer_core/ops/cuda/attention/attention_library.h"
#include "trainer_core/ops/cuda/device/cuda_check.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the frontend resolves cuDNN's functions here
}

namespace muster::trainer::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using TensorPtr = std::shared_ptr<Tensor_attributes>;

// Ids of the graphs' tensors.
enum Uid : int64_t { kQ = 1, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv };

// Batch, length, heads of queries and of keys, width of a head, window, widths of rows, and the
// bits of the scale.
using Key = std::array<int64_t, 9>;
Key key_of(const LibraryAttentionArgs& l) {
  return {l.batch,     l.seq_len,   l.heads,
          l.kv_heads,  l.head_dim,  l.window,
          l.qkv_width, l.out_width, static_cast<int64_t>(std::bit_cast<uint32_t>(l.scale))};
}

// The graph of one pass. No graph: cuDNN does not support it, for the given reason.
struct Pass {
  std::unique_ptr<fe::graph::Graph> graph;
  size_t workspace_bytes = 0;
  std::string why;
};

// (B, heads, S, h) within rows of `width` elements.
Tensor_attributes tensor(const LibraryAttentionArgs& l, Uid uid, int64_t heads, int64_t width) {
  Tensor_attributes attributes;
  attributes.set_uid(uid)
      .set_dim({l.batch, heads, l.seq_len, l.head_dim})
      .set_stride({l.seq_len * width, l.head_dim, width, 1});
  return attributes;
}
Tensor_attributes lse_tensor(const LibraryAttentionArgs& l) {
  Tensor_attributes attributes;
  attributes.set_uid(kLse)
      .set_dim({l.batch, l.heads, l.seq_len, 1})
      .set_stride({l.heads * l.seq_len, l.seq_len, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
  return attributes;
}
void make_output(const TensorPtr& tensor, const Tensor_attributes& as) {
  tensor->set_output(true).set_uid(as.get_uid()).set_dim(as.get_dim()).set_stride(as.get_stride());
}

struct Inputs {
  TensorPtr q, k, v;
};
Inputs inputs(fe::graph::Graph& graph, const LibraryAttentionArgs& l) {
  return {graph.tensor(tensor(l, kQ, l.heads, l.qkv_width)),
          graph.tensor(tensor(l, kK, l.kv_heads, l.qkv_width)),
          graph.tensor(tensor(l, kV, l.kv_heads, l.qkv_width))};
}

// Query i attends to key j if i >= j and j + window > i (cudnn-frontend, sliding_window_mask), the
// same rule as AttentionShape's.
template <class Options>
void set_mask(Options& options, const LibraryAttentionArgs& l) {
  options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
      .set_diagonal_band_right_bound(0);
  if (l.window > 0) options.set_diagonal_band_left_bound(static_cast<int>(l.window));
}

void add_forward(fe::graph::Graph& graph, const LibraryAttentionArgs& l) {
  const Inputs in = inputs(graph, l);
  auto options = fe::graph::SDPA_attributes()
                     .set_name("attention")
                     .set_generate_stats(true)
                     .set_attn_scale(l.scale);
  set_mask(options, l);
  auto [out, lse] = graph.sdpa(in.q, in.k, in.v, options);
  make_output(out, tensor(l, kOut, l.heads, l.out_width));
  make_output(lse, lse_tensor(l));
  lse->set_data_type(fe::DataType_t::FLOAT);
}

// Deterministic: a restart must repeat the bits of the run.
void add_backward(fe::graph::Graph& graph, const LibraryAttentionArgs& l) {
  const Inputs in = inputs(graph, l);
  const TensorPtr out = graph.tensor(tensor(l, kOut, l.heads, l.out_width));
  const TensorPtr dout = graph.tensor(tensor(l, kDout, l.heads, l.out_width));
  const TensorPtr lse = graph.tensor(lse_tensor(l));
  auto options = fe::graph::SDPA_backward_attributes()
                     .set_name("attention backward")
                     .set_attn_scale(l.scale)
                     .set_deterministic_algorithm(true);
  set_mask(options, l);
  auto [dq, dk, dv] = graph.sdpa_backward(in.q, in.k, in.v, out, dout, lse, options);
  make_output(dq, tensor(l, kDq, l.heads, l.qkv_width));
  make_output(dk, tensor(l, kDk, l.kv_heads, l.qkv_width));
  make_output(dv, tensor(l, kDv, l.kv_heads, l.qkv_width));
}

class CudnnAttention final : public AttentionLibrary {
 public:
  explicit CudnnAttention(cudnnHandle_t handle) : handle_(handle) {}
  ~CudnnAttention() override {
    forward_.clear();
    backward_.clear();
    (void)fe::detail::destroy_handle(handle_);
  }
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  LibraryAnswer forward(cudaStream_t stream, const LibraryAttentionArgs& layer, void* workspace,
                        size_t workspace_bytes) override {
    return run(forward_, add_forward, layer, stream, pointers(layer), workspace, workspace_bytes);
  }
  LibraryAnswer backward(cudaStream_t stream, const LibraryAttentionArgs& layer,
                         const LibraryAttentionGradients& gradients, void* workspace,
                         size_t workspace_bytes) override {
    auto all = pointers(layer);
    all[kDout] = mutable_of(gradients.dout);
    all[kDq] = gradients.dq;
    all[kDk] = gradients.dk;
    all[kDv] = gradients.dv;
    return run(backward_, add_backward, layer, stream, std::move(all), workspace, workspace_bytes);
  }

 private:
  using Passes = std::map<Key, Pass>;
  using Pointers = std::unordered_map<int64_t, void*>;

  static void* mutable_of(const Bf16* numbers) { return const_cast<Bf16*>(numbers); }
  static Pointers pointers(const LibraryAttentionArgs& layer) {
    return {{kQ, mutable_of(layer.q)},
            {kK, mutable_of(layer.k)},
            {kV, mutable_of(layer.v)},
            {kOut, layer.out},
            {kLse, layer.lse}};
  }

  template <class Add>
  LibraryAnswer run(Passes& passes, const Add& add, const LibraryAttentionArgs& layer,
                    cudaStream_t stream, Pointers all, void* workspace, size_t workspace_bytes) {
    // Bytes that cuDNN's kernels load at once.
    constexpr uintptr_t kAlignment = 16;
    for (const auto& [uid, pointer] : all)
      if (reinterpret_cast<uintptr_t>(pointer) % kAlignment != 0)
        return {.kind = LibraryAnswer::Kind::kNone,
                .why = "its rows begin at no multiple of 16 bytes"};
    const Pass& pass = prepare(passes, add, layer);
    if (pass.graph == nullptr) return {.kind = LibraryAnswer::Kind::kNone, .why = pass.why};
    if (pass.workspace_bytes > workspace_bytes)
      return {.kind = LibraryAnswer::Kind::kNoRoom, .needs_bytes = pass.workspace_bytes};
    const std::string error = execute(*pass.graph, stream, all, workspace);
    if (error.empty()) return {};
    const std::string what = "cuDNN's attention ends with " + error;
    MUSTER_CHECK(fails_capture(what)) << what;
    return {};
  }
  // Returns the error; empty if there is none.
  std::string execute(const fe::graph::Graph& graph, cudaStream_t stream, Pointers& all,
                      void* workspace) const {
    try {
      if (fe::detail::set_stream(handle_, stream) != CUDNN_STATUS_SUCCESS) return "cudnnSetStream";
      auto status = graph.execute(handle_, all, workspace);
      return status.is_good() ? "" : status.get_message();
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  template <class Add>
  const Pass& prepare(Passes& passes, const Add& add, const LibraryAttentionArgs& layer) {
    const auto [place, is_new] = passes.try_emplace(key_of(layer));
    Pass& pass = place->second;
    if (!is_new) return pass;
    try {
      auto graph = std::make_unique<fe::graph::Graph>();
      graph->set_io_data_type(fe::DataType_t::BFLOAT16)
          .set_intermediate_data_type(fe::DataType_t::FLOAT)
          .set_compute_data_type(fe::DataType_t::FLOAT);
      add(*graph, layer);
      // Also checks whether the device and this cuDNN support the graph.
      auto status = graph->build(handle_, {fe::HeurMode_t::A});
      int64_t bytes = 0;
      if (status.is_good()) status = graph->get_workspace_size(bytes);
      if (status.is_good() && bytes >= 0) {
        pass.workspace_bytes = static_cast<size_t>(bytes);
        pass.graph = std::move(graph);
      } else {
        pass.why = status.get_message();
      }
    } catch (const std::exception& error) {
      pass.why = error.what();
    }
    return pass;
  }

  cudnnHandle_t handle_;
  Passes forward_, backward_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AttentionLibrary>> open_attention_library() {
  // Never closed: the library has threads and handlers of its own. Ranks that are threads of one
  // process open it once.
  static const absl::Status opened = [] {
    fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    return fe::cudnn_dlhandle != nullptr ? absl::OkStatus() : absl::NotFoundError(dlerror());
  }();
  if (!opened.ok()) return opened;
  try {
    cudnnHandle_t handle = nullptr;
    const cudnnStatus_t created = fe::detail::create_handle(&handle);
    if (created == CUDNN_STATUS_SUCCESS) return std::make_unique<CudnnAttention>(handle);
    return absl::FailedPreconditionError(
        absl::StrCat("cudnnCreate ends with ", fe::detail::get_error_string(created)));
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(error.what());
  }
}

}  // namespace muster::trainer::cuda
