// The op table: every operation of a training step, forward and backward, behind one abstract
// class. `cpu_ops()` implements it; a CUDA backend will implement the same table.
//
// Semantics that hold on every backend:
// - Stream-ordered. A call enqueues work behind the calls before it and may return before the work is done;
//   synchronize(), download() and the functions that return a number wait for it. The CPU backend runs at the call.
// - Tensors are contiguous, row-major, in the backend's own memory, and must live until the work is done.
//   Outputs may not overlap inputs unless a comment says so. "Written" replaces what was there; "added" needs it
//   initialised.
// - Deterministic: the same calls on the same backend with the same number of threads give the same bits.
// - Shapes are our own invariants: a mismatch ends the process (base/check.h). So do ids outside the table.
// - `Workspace` is scratch whose contents do not survive the call; sizes come from ops/workspace.h.
//
// One thread at a time per object; several objects may work in different threads of one process.
//
// Letters: T = B * S rows of tokens, B sequences of S, d = model width, H query and K key/value
// heads of h elements, m = MLP width, V = vocabulary. Row i of a (T, ...) tensor is position i % S
// of sequence i / S.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "trainer_core/base/tensor.h"

namespace muster::trainer {

struct Workspace {
  float* data = nullptr;
  int64_t elements = 0;
};

enum class Transpose : uint8_t { kNo, kYes };
enum class Accumulate : uint8_t { kNo, kYes };

// Shape of rope, attention and their backwards. A row of qkv is [H * h queries | K * h keys | K * h
// values]; query head q attends with key/value head q / (H / K).
struct AttentionShape {
  int64_t batch = 0;     // B
  int64_t seq_len = 0;   // S
  int64_t heads = 0;     // H
  int64_t kv_heads = 0;  // K, divides H
  int64_t head_dim = 0;  // h, even

  int64_t rows() const { return batch * seq_len; }
  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t out_width() const { return heads * head_dim; }
};

enum class RopeDirection : uint8_t { kForward, kBackward };

// One AdamW update with the bias corrections already computed; see optim/adamw.h for the formula.
struct AdamWStep {
  double learning_rate = 0;
  double b1 = 0;
  double b2 = 0;
  double eps = 0;
  double eps_root = 0;
  double weight_decay = 0;
  double grad_scale = 1;        // multiplies every gradient first
  double bias_correction1 = 1;  // 1 - b1^t
  double bias_correction2 = 1;  // 1 - b2^t
};

class Ops {
 public:
  virtual ~Ops() = default;

  virtual std::string_view name() const = 0;

  // Memory and order
  // ------------------------------------------------------------------------------------

  // Host memory to the backend's; `from` may be reused when the call returns.
  virtual void upload(const void* from, const Tensor& to) = 0;
  // The backend's memory to the host's; waits.
  virtual void download(const Tensor& from, void* to) = 0;
  virtual void synchronize() = 0;

  // Elementwise and reductions
  // --------------------------------------------------------------------------

  virtual void fill(const Tensor& x, float value) = 0;
  virtual void copy(const Tensor& from, const Tensor& to) = 0;
  // Sum of the elements and of their squares, accumulated in fp64 in an order that depends on the
  // size alone. Wait.
  virtual double sum(const Tensor& x) = 0;
  virtual double sum_of_squares(const Tensor& x) = 0;

  // Matrix product
  // --------------------------------------------------------------------------------------

  // c (M, N) = op(a) op(b), or c += …, where op(a) is (M, K), op(b) is (K, N) and kYes means that
  // the tensor holds the transpose.
  virtual void matmul(const Tensor& a, Transpose transpose_a, const Tensor& b,
                      Transpose transpose_b, const Tensor& c, Accumulate accumulate) = 0;

  // Embedding
  // -------------------------------------------------------------------------------------------

  // out (T, d) = table (V, d)[tokens (T)]
  virtual void embedding(const Tensor& tokens, const Tensor& table, const Tensor& out) = 0;
  // dtable (V, d)[tokens (T)] += dout (T, d), rows of a token added in the order of T.
  virtual void embedding_backward(const Tensor& tokens, const Tensor& dout,
                                  const Tensor& dtable) = 0;

  // RMSNorm (Zhang and Sennrich, 2019)
  // ------------------------------------------------------------------

  // rstd (T) = 1 / sqrt(mean(x²) + eps); y (T, d) = x rstd gain (d)
  virtual void rms_norm(const Tensor& x, const Tensor& gain, double eps, const Tensor& y,
                        const Tensor& rstd) = 0;
  // sum (T, d) = x + delta, then rms_norm of sum. `sum` may be `x` or `delta`.
  virtual void add_rms_norm(const Tensor& x, const Tensor& delta, const Tensor& gain, double eps,
                            const Tensor& sum, const Tensor& y, const Tensor& rstd) = 0;
  // dx (T, d) += rstd (dy gain - x rstd² mean(dy gain x)); dgain (d) written with the sum of dy x
  // rstd over rows.
  virtual void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& gain,
                                 const Tensor& rstd, const Tensor& dx, const Tensor& dgain,
                                 Workspace workspace) = 0;

  // Attention
  // -------------------------------------------------------------------------------------------

  // Rotates the query and key part of qkv (T, qkv_width) in place, half-split: with c, s = cos and
  // sin of row `position` of the tables (S, h/2), (a, b) = (x[i], x[i + h/2]) becomes (a c - b s, b
  // c + a s). Backward applies the transpose to a gradient.
  virtual void rope(const AttentionShape& shape, const Tensor& cos, const Tensor& sin,
                    RopeDirection direction, const Tensor& qkv) = 0;
  // Blocked causal attention (Dao, "FlashAttention-2", 2023): per head out (S, h) = P v with
  // P = softmax(q kᵀ / sqrt(h)) over positions up to the row's own; lse (B, H, S) = the logarithm
  // of the softmax's denominator. out (T, H h).
  virtual void attention(const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                         const Tensor& lse, Workspace workspace) = 0;
  // With P recomputed from lse and D = rowsum(dout out): dS = P (dout vᵀ - D); dv = Pᵀ dout;
  // dq = dS k / sqrt(h); dk = dSᵀ q / sqrt(h). Key/value gradients sum over their query heads. dqkv
  // written.
  virtual void attention_backward(const AttentionShape& shape, const Tensor& qkv, const Tensor& out,
                                  const Tensor& lse, const Tensor& dout, const Tensor& dqkv,
                                  Workspace workspace) = 0;

  // SwiGLU (Shazeer, 2020)
  // ------------------------------------------------------------------------------

  // A row of gate_up (T, 2m) is [gate (m) | up (m)]; out (T, m) = gate sigmoid(gate) up.
  virtual void swiglu(const Tensor& gate_up, const Tensor& out) = 0;
  // Replaces gate_up by its gradient, given dout (T, m).
  virtual void swiglu_backward(const Tensor& dout, const Tensor& gate_up) = 0;

  // Loss
  // ------------------------------------------------------------------------------------------------

  // losses (R) = weights (R) * (logsumexp(logits) - logits[target]) for R rows of logits (R, V).
  virtual void cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& weights,
                             const Tensor& losses) = 0;
  // The same, and replaces logits by the gradient of sum(losses): weight (softmax -
  // onehot(target)).
  virtual void cross_entropy_backward(const Tensor& logits, const Tensor& targets,
                                      const Tensor& weights, const Tensor& losses) = 0;

  // Optimizer
  // -------------------------------------------------------------------------------------------

  // One update of a flat block; all four of one size.
  virtual void adamw(const AdamWStep& step, const Tensor& grads, const Tensor& params,
                     const Tensor& m, const Tensor& v) = 0;
};

// The CPU backend (Highway and OpenMP; matmul by oneDNN where there is AVX-512) with `threads` threads, at least 1.
// With oneDNN it owns a compiled matrix product and its scratch per shape, made when the shape is first seen and kept;
// beside those, and panels that oneDNN holds during a product, it allocates nothing.
std::unique_ptr<Ops> cpu_ops(int threads);

}  // namespace muster::trainer
