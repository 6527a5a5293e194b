// cuDNN's attention, where its library is found when the process runs: nothing links it, as with cuBLASLt (matrix_library.h). What it has
// nothing for is our own kernels' (attention.h).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace muster::trainer::cuda {

// Causal attention of whole sequences of bf16: rows of qkv, out and lse as Ops::attention has them.
struct LibraryAttention {
  int64_t batch, seq_len, heads, kv_heads, head_dim;
  float scale;
  const void* qkv;
  void* out;
  float* lse;

  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
};

// One thread at a time.
class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;

  // False: the library has nothing for this shape, or needs a larger workspace, and nothing was started. `workspace` is the device's; its
  // contents do not survive.
  virtual bool forward(cudaStream_t stream, const LibraryAttention& layer, void* workspace,
                       size_t workspace_bytes) = 0;
  virtual bool backward(cudaStream_t stream, const LibraryAttention& layer, const void* dout,
                        void* dqkv, void* workspace, size_t workspace_bytes) = 0;
};

// Null where libcudnn.so.9 is not found, and in builds without cudnn-frontend's headers. For the device that is current.
std::unique_ptr<AttentionLibrary> open_attention_library();

}  // namespace muster::trainer::cuda
