// Attention by cuDNN. Like cuBLASLt (matrix_library.h), the library is not linked, but loaded at
// run time if it is present. The built-in kernels (attention.h) compute the attention that it does
// not support.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include <absl/status/statusor.h>

#include "trainer_core/base/bf16.h"
#include "trainer_core/ops/cuda/device/library_answer.h"

namespace muster::trainer::cuda {

// Causal attention over complete sequences in bf16: all heads of several sequences, or for one
// sequence, some key heads and the query heads that use them. Rows are laid out as in
// Ops::attention.
struct LibraryAttentionArgs {
  int64_t batch, seq_len, heads, kv_heads, head_dim;
  float scale;
  // Number of latest positions to which a query attends, including its own; 0: all positions up to
  // its own.
  int64_t window;
  int64_t qkv_width, out_width;  // number of elements from one row to the next
  const Bf16* q;
  const Bf16* k;
  const Bf16* v;
  Bf16* out;
  float* lse;  // (batch, heads, S)

  // Returns the part with `sequences` sequences from `sequence` on, and `key_heads` key heads from
  // `key_head` on. Requires that `sequences` is 1 if the part has fewer than all key heads.
  LibraryAttentionArgs part(int64_t sequence, int64_t sequences, int64_t key_head,
                            int64_t key_heads) const;
};

// The gradients of a layer. The rows of dq, dk and dv are laid out like those of q, k and v, the
// rows of dout like those of out.
struct LibraryAttentionGradients {
  const Bf16* dout;
  Bf16* dq;
  Bf16* dk;
  Bf16* dv;

  // Returns the gradients of the part of `layer` that begins at this sequence and key head.
  LibraryAttentionGradients part(const LibraryAttentionArgs& layer, int64_t sequence,
                                 int64_t key_head) const;
};

// Runs a part of the layer. `sequence`, `key_head`: the part's first sequence and first key head.
using AttentionPartRun = std::function<LibraryAnswer(const LibraryAttentionArgs& part,
                                                     int64_t sequence, int64_t key_head)>;
// Calls `run` for parts of the layer whose workspace fits: the whole layer, equal numbers of its
// sequences, or equal numbers of one sequence's key heads. If the returned answer is not kDone,
// outputs may be partly written, and the caller must compute all of them.
LibraryAnswer in_parts(const LibraryAttentionArgs& layer, const AttentionPartRun& run);

// cuDNN on one device. Called by one thread at a time.
class AttentionLibrary {
 public:
  virtual ~AttentionLibrary() = default;

  // `workspace` is device memory; its contents do not survive the call.
  virtual LibraryAnswer forward(cudaStream_t stream, const LibraryAttentionArgs& layer,
                                void* workspace, size_t workspace_bytes) = 0;
  virtual LibraryAnswer backward(cudaStream_t stream, const LibraryAttentionArgs& layer,
                                 const LibraryAttentionGradients& gradients, void* workspace,
                                 size_t workspace_bytes) = 0;
};

// Opens the library for the current device. Returns NotFound if there is no libcudnn.so.9,
// FailedPrecondition if it does not work with the device, and Unimplemented in builds without the
// headers of cudnn-frontend.
absl::StatusOr<std::unique_ptr<AttentionLibrary>> open_attention_library();

}  // namespace muster::trainer::cuda
