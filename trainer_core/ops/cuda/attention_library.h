// cuDNN's attention, where its library is found when the process runs: nothing links it, as with cuBLASLt (matrix_library.h). What it has
// nothing for is our own kernels' (attention.h).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include <absl/status/statusor.h>

#include "trainer_core/base/bf16.h"
#include "trainer_core/ops/cuda/library_answer.h"

namespace muster::trainer::cuda {

// Causal attention of whole sequences of bf16: some sequences' heads, or one sequence's heads of some keys, within rows as Ops::attention
// has them.
struct LibraryAttention {
  int64_t batch, seq_len, heads, kv_heads, head_dim;
  float scale;
  int64_t window;  // the latest positions that one sees, itself included; 0: all before it
  int64_t qkv_width, out_width;  // numbers from a row to the next
  const Bf16* q;
  const Bf16* k;
  const Bf16* v;
  Bf16* out;
  float* lse;  // (batch, heads, S)

  // `sequences` from `sequence` on; those of fewer than all key heads are one.
  LibraryAttention part(int64_t sequence, int64_t sequences, int64_t key_head,
                        int64_t key_heads) const;
};

// The gradients, of the layer's rows; dq, dk and dv within rows like those of q, k and v, dout's like out's.
struct LibraryAttentionGradients {
  const Bf16* dout;
  Bf16* dq;
  Bf16* dk;
  Bf16* dv;

  LibraryAttentionGradients part(const LibraryAttention& layer, int64_t sequence,
                                 int64_t key_head) const;
};

// A part, its first sequence and its first key head.
using AttentionPartRun =
    std::function<LibraryAnswer(const LibraryAttention& part, int64_t sequence, int64_t key_head)>;
// run() of parts for which the workspace has room: of all at once, or of equal runs of sequences, or of one sequence's heads. Where the answer
// is not kDone whatever was written has to be written again.
LibraryAnswer in_parts(const LibraryAttention& layer, const AttentionPartRun& run);

// One thread at a time.
class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;

  // `workspace` is the device's; its contents do not survive.
  virtual LibraryAnswer forward(cudaStream_t stream, const LibraryAttention& layer, void* workspace,
                                size_t workspace_bytes) = 0;
  virtual LibraryAnswer backward(cudaStream_t stream, const LibraryAttention& layer,
                                 const LibraryAttentionGradients& gradients, void* workspace,
                                 size_t workspace_bytes) = 0;
};

// For the device that is current. NotFound where libcudnn.so.9 is not, FailedPrecondition where it cannot be used there, Unimplemented in builds
// without cudnn-frontend's headers.
absl::StatusOr<std::unique_ptr<AttentionLibrary>> open_attention_library();

}  // namespace muster::trainer::cuda
