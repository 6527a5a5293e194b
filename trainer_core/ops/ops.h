// The op table: every operation of a training step, forward and backward, behind one abstract
// class. `cpu_ops()` and the CUDA backend (cuda/cuda.h) implement it; backend.h combines each with
// its memory.
//
// Semantics on every backend:
// - Stream-ordered. A call enqueues work after earlier calls' work and may return before it is
// done; synchronize(), download() and functions that return a number wait for it. The CPU backend
// runs synchronously.
// - Tensors are contiguous, row-major, in the backend's own memory, and must live until the work is
// done. Outputs may not overlap inputs unless a comment permits it. "Written" replaces the previous
// value; "added" requires an initialised one.
// - Activations and their gradients are fp32 or bf16 (DType), of one type in a call, where ops.h
// has (T, …): the residual stream, norms' inputs and outputs, qkv, attention's output, the MLP's.
// Parameters and their gradients, statistics, lse, tables, logits, losses and weights are fp32. All
// arithmetic inside is fp32: loads widen, stores round to the nearest bf16, ties to even; NaN stays
// NaN. GEMMs of bf16 may round their operands. fill, copy, scale, dropout and sums accept either
// type; the loss only fp32. Decoding's matrices and the token table may be bf16, too.
// - Deterministic: the same calls on the same backend with the same number of threads give the same
// bits.
// - Shapes are our own invariants: a mismatch ends the process (base/check.h), as do ids outside
// the table.
//
// One thread at a time per object; different objects may work in different threads of one process.
//
// Letters: T = B * S rows of tokens, B sequences of S, d = model width, H query and K key/value
// heads of h elements, m = MLP width, V = vocabulary. Row i of a (T, ...) tensor is position i % S
// of sequence i / S; TokenRows gives the positions if a rank has only a part of every sequence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer_core/base/device_memory.h"
#include "trainer_core/base/model_config.h"
#include "trainer_core/base/normal_fill.h"
#include "trainer_core/base/tensor.h"
#include "trainer_core/ops/attention_shape.h"
#include "trainer_core/ops/epilogue.h"
#include "trainer_core/ops/expert_ops.h"
#include "trainer_core/ops/op_arguments.h"
#include "trainer_core/ops/quantize_ops.h"
#include "trainer_core/ops/shard_ops.h"
#include "trainer_core/ops/token_rows.h"

namespace muster::trainer {

class Replayer;  // replay.h

enum class Transpose : uint8_t { kNo, kYes };

enum class RopeDirection : uint8_t { kForward, kBackward };
// Which two elements of a head rotate together: i and i + h/2, or 2i and 2i + 1.
enum class RopePairs : uint8_t { kHalves, kInterleaved };

struct NormShape {
  NormType type = NormType::kRms;
  double eps = 1e-5;
  double gain_offset = 0;

  // Returns the fp32 elements that a norm of `rows` rows saves for its backward pass.
  int64_t stats(int64_t rows) const { return type == NormType::kLayer ? 2 * rows : rows; }
};

// A norm's parameters, or their gradients: gain (d), and with kLayer bias (d).
struct NormWeights {
  Tensor gain;
  Tensor bias;
};

// An MLP's activation: f(gate) up of rows [gate (m) | up (m)], or without a gate f of rows (m).
struct MlpActivation {
  Activation kind = Activation::kSilu;
  bool gated = true;

  int64_t input_width(int64_t m) const { return gated ? 2 * m : m; }
};

// Selects the elements that dropout drops: each with probability `rate`, by counter-based random
// numbers (common/philox.h). They depend on the key, the location in the model and the element's
// index in its sample, so they are the same for the gradient, for recomputed layers, and on any
// mesh.
struct DropoutMask {
  double rate = 0;  // in [0, 1)
  uint64_t key = 0;
  uint32_t location = 0;  // below 2^18
  SampleElements elements{};
};

// One update of Adam, with step-dependent values precomputed; see optim/optimizer.h for the
// formulas.
struct AdamStep {
  double learning_rate = 0;
  double b1 = 0;
  double b2 = 0;
  double eps = 0;
  double eps_root = 0;
  double weight_decay = 0;
  double grad_scale = 1;        // multiplies every gradient first
  double bias_correction1 = 1;  // 1 - b1^t
  double bias_correction2 = 1;  // 1 - b2^t
  // Random words for the stochastic rounding of a bf16 m; none: round to nearest.
  struct Noise {
    uint64_t key = 0;
    uint64_t update = 0;  // its number
    int64_t first = 0;    // the number of the blocks' first element, not below 0
  };
  std::optional<Noise> noise = {};
};

struct AdafactorStep {
  double decay = 0;  // decay of the running means
  double eps = 0;    // added to every squared gradient
  double grad_scale = 1;
};

class Ops : public ExpertOps, public QuantizeOps, public ShardOps {
 public:
  virtual std::string_view name() const = 0;

  // Memory and order
  // ------------------------------------------------------------------------------------

  // Copies host memory to the backend's; `from` may be reused when the call returns.
  virtual void upload(const void* from, const Tensor& to) = 0;
  // Copies the backend's memory to the host's; waits.
  virtual void download(const Tensor& from, void* to) = 0;
  virtual void synchronize() = 0;
  // The queue of this object's calls, for work beside it or ordered with it (base/device_memory.h);
  // null if calls are synchronous.
  virtual std::shared_ptr<DeviceQueue> queue() { return nullptr; }
  // Returns a replayer of recorded calls; null if replay starts them no sooner. Must be destroyed
  // before this object.
  virtual std::shared_ptr<Replayer> make_replayer() { return nullptr; }
  // Names the calls until end_range() for profilers (NVTX), with an optional number from 0 on.
  // Ranges nest; OpRange ends them.
  virtual void begin_range(const char* /*name*/, int64_t /*number*/ = -1) {}
  virtual void end_range() {}
  // Returns one line per operation that its libraries could have computed since the last call but
  // did not; each operation of a shape appears once.
  virtual std::vector<std::string> take_notes() { return {}; }

  // Elementwise and reductions
  // --------------------------------------------------------------------------

  virtual void fill(const Tensor& x, float value) = 0;
  // Writes x (R, C) fp32: element (r, c) is value first + r pitch + c of the stream. Every backend
  // writes the same bits.
  virtual void fill_normal(const NormalStream& values, int64_t first, int64_t pitch,
                           const Tensor& x) = 0;
  // Either tensor may be in host memory that the backend has mapped for offloaded buffers. Rounds
  // from fp32 to bf16.
  virtual void copy(const Tensor& from, const Tensor& to) = 0;
  // sum (T, d) = x + delta; `sum` may be either of them.
  virtual void add(const Tensor& x, const Tensor& delta, const Tensor& sum) = 0;
  // x *= factor
  virtual void scale(double factor, const Tensor& x) = 0;
  // x = 0 where the mask drops, else x / (1 - rate) (Srivastava et al., 2014, "inverted"). Also its
  // own backward operation.
  virtual void dropout(const DropoutMask& mask, const Tensor& x) = 0;
  // Sum of the elements (fp32 or bf16) and of their squares, accumulated in fp64 in an order that
  // depends only on the size. Both wait.
  virtual double sum(const Tensor& x) = 0;
  virtual double sum_of_squares(const Tensor& x) = 0;

  // Matrix product
  // --------------------------------------------------------------------------------------

  // c (M, N) = op(a) op(b), or c += …, where op(a) is (M, K), op(b) is (K, N) and kYes means that
  // the tensor is stored transposed. If one of the three is bf16, the GEMM is a bf16 GEMM, as in
  // JAX with weights cast to the activations' type: fp32 operands are rounded to bf16 first, sums
  // are fp32, and a bf16 c is written, not added to. Results agree up to summation order on all
  // backends, except that AVX512-BF16 flushes denormals to zero.
  virtual void matmul(const Tensor& a, Transpose transpose_a, const Tensor& b,
                      Transpose transpose_b, const Tensor& c, Accumulate accumulate) = 0;
  // Writes c with the GEMM's result after the epilogue: fused if the backend supports it, otherwise
  // with separate operations. Results agree up to the number of roundings.
  virtual void fused_matmul(const Tensor& a, Transpose transpose_a, const Tensor& b,
                            Transpose transpose_b, const Tensor& c, const Epilogue& epilogue);

  // Bias
  // -----------------------------------------------------------------------------------------------

  // x (T, n) += bias (n)
  virtual void add_bias(const Tensor& bias, const Tensor& x) = 0;
  // Writes or adds to dbias (n) the sum of the rows of dx (T, n).
  virtual void bias_backward(const Tensor& dx, const Tensor& dbias, Accumulate accumulate,
                             Workspace workspace) = 0;

  // Embedding
  // -------------------------------------------------------------------------------------------

  // out (T, d) = scale * table (V, d)[tokens (T)]; with a slice of the table, zeros for tokens of
  // other slices.
  virtual void embedding(const Tensor& tokens, const Tensor& table, const VocabularySlice& slice,
                         double scale, const Tensor& out) = 0;
  // dtable (V, d)[tokens (T)] += scale * dout (T, d); rows of the same token are added in the order
  // of T.
  virtual void embedding_backward(const Tensor& tokens, const Tensor& dout,
                                  const VocabularySlice& slice, double scale,
                                  const Tensor& dtable) = 0;
  // x (R, d) += table (P, d)[position], counted from the start of the row's document: `starts` (R)
  // is AttentionShape's.
  virtual void add_positions(const Tensor& table, const TokenRows& rows, const Tensor& starts,
                             const Tensor& x) = 0;
  // Writes or adds to dtable (P, d) the sum of dx over each position's tokens, zeros for positions
  // without tokens.
  virtual void positions_backward(const Tensor& dx, const TokenRows& rows, const Tensor& starts,
                                  const Tensor& dtable, Accumulate accumulate) = 0;

  // RMSNorm (Zhang and Sennrich, 2019) and LayerNorm (Ba et al., 2016)
  // ------------------------------------------------------------------

  // y (T, d) = n (gain_offset + gain) + bias. kRms: n = x rstd with rstd = 1 / sqrt(mean(x²) +
  // eps), no bias; stats (T) = rstd. kLayer: n = (x - mean) rstd with rstd = 1 / sqrt(var + eps);
  // stats (2, T) = rstd, then mean.
  virtual void norm(const NormShape& shape, const Tensor& x, const NormWeights& weights,
                    const Tensor& y, const Tensor& stats) = 0;
  // sum (T, d) = x + delta, then norm of sum. `sum` may be `x` or `delta`.
  virtual void add_norm(const NormShape& shape, const Tensor& x, const Tensor& delta,
                        const NormWeights& weights, const Tensor& sum, const Tensor& y,
                        const Tensor& stats) = 0;
  // Given g = dy (gain_offset + gain): kRms: dx (T, d) += rstd (g - n mean(g n)); kLayer: dx +=
  // rstd (g - mean(g) - n mean(g n)). Writes or adds the gradients of gain (sum of dy n over rows)
  // and bias (sum of dy).
  virtual void norm_backward(const NormShape& shape, const Tensor& dy, const Tensor& x,
                             const NormWeights& weights, const Tensor& stats, const Tensor& dx,
                             const NormWeights& d_weights, Accumulate accumulate,
                             Workspace workspace) = 0;

  // Attention
  // -------------------------------------------------------------------------------------------

  // Rotates the query and key part of qkv (T, qkv_width) in place: with c, s = cos and sin of
  // element i of row `position` of the tables (P, h/2), pair i = (a, b) becomes (a c - b s, b c + a
  // s). Backward applies the transpose to a gradient.
  virtual void rope(const AttentionShape& shape, const Tensor& cos, const Tensor& sin,
                    RopePairs pairs, RopeDirection direction, const Tensor& qkv) = 0;
  // Blocked causal attention (Dao, "FlashAttention-2", 2023). Per head out (S, h) = P v with P =
  // softmax(soft_cap(scale q kᵀ + bias)) over the positions in the row's window and document up to
  // its own; lse (B, H, S) = the logarithm of the softmax's denominator. out is (T, H h). bias (H,
  // buckets) is fp32, indexed by head and bucket of the distance; no tensor if the shape has no
  // buckets. With bf16, P and in the backward pass dS may be rounded before their GEMMs.
  virtual void attention(const AttentionShape& shape, const Tensor& qkv, const Tensor& bias,
                         const Tensor& out, const Tensor& lse, Workspace workspace) = 0;
  // The same for S new positions from `position` on, with earlier ones in a cache: writes their
  // keys and values to `cache`, then attends to all of it. qkv (B S, qkv_width) after RoPE; out (B
  // S, H h).
  virtual void attention_cached(const AttentionShape& shape, int64_t position, const Tensor& qkv,
                                const Tensor& bias, const KvCache& cache, const Tensor& out,
                                Workspace workspace) = 0;
  // Given P recomputed from lse and D = rowsum(dout out): dS = P (dout vᵀ - D), times 1 - (score /
  // cap)² with a soft cap; dv = Pᵀ dout; dq = scale dS k; dk = scale dSᵀ q. Key/value gradients sum
  // over their query heads. Writes dqkv; writes or adds to dbias the sum of dS over sequences and
  // over positions of each distance's bucket. No bias tensors without buckets.
  virtual void attention_backward(const AttentionShape& shape, const Tensor& qkv,
                                  const Tensor& bias, const Tensor& out, const Tensor& lse,
                                  const Tensor& dout, const Tensor& dqkv, const Tensor& dbias,
                                  Accumulate accumulate, Workspace workspace) = 0;

  // MLP
  // -----------------------------------------------------------------------------------------------

  // Computes out (T, m) from in (T, input_width(m)).
  virtual void activate(const MlpActivation& activation, const Tensor& in, const Tensor& out) = 0;
  // Computes the gradient of `in`, d_in (T, input_width(m)), from dout (T, m). d_in may be `in`,
  // and without a gate dout.
  virtual void activate_backward(const MlpActivation& activation, const Tensor& dout,
                                 const Tensor& in, const Tensor& d_in) = 0;

  // Loss
  // -----------------------------------------------------------------------------------------------

  // x = cap tanh(x / cap)
  virtual void soft_cap(double cap, const Tensor& x) = 0;
  // losses (R) = weights (R) * (lse - logits[target] + z_loss lse²) for R rows of logits (R, V),
  // soft-capped first if the shape has a cap, with lse their logsumexp. Leaves logits unchanged, or
  // capped.
  virtual void cross_entropy(const LossShape& shape, const Tensor& logits, const Tensor& targets,
                             const Tensor& weights, const Tensor& losses) = 0;
  // The same, and replaces logits by the gradient of sum(losses) with respect to their values
  // before the cap: weight (softmax (1 + 2 z_loss lse) - onehot(target)), times 1 - (logit / cap)².
  virtual void cross_entropy_backward(const LossShape& shape, const Tensor& logits,
                                      const Tensor& targets, const Tensor& weights,
                                      const Tensor& losses) = 0;

  // Optimizer
  // -------------------------------------------------------------------------------------------

  // One update of a flat block; all four of one size, m in fp32 or bf16, to which it is rounded
  // once the update is made:
  //   m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g², u = m / c1 / (sqrt(v / c2 + eps_root) + eps),
  //     params -= lr (u + wd params)
  virtual void adam(const AdamStep& step, const Tensor& grads, const Tensor& params,
                    const Tensor& m, const Tensor& v) = 0;
  // The same m, v and u; u replaces the gradient. The step's rate and weight decay are not read.
  virtual void adam_direction(const AdamStep& step, const Tensor& grads, const Tensor& m,
                              const Tensor& v) = 0;
  // v = decay v + (1 - decay) (g² + eps); g / sqrt(v) replaces the gradient.
  virtual void adafactor_direction(const AdafactorStep& step, const Tensor& grads,
                                   const Tensor& v) = 0;
  // Adds the sums of a matrix's squares to `rows` (r) and to `columns` (c), for x (r, c). Waits.
  virtual void add_squares(const Tensor& x, std::span<double> rows, std::span<double> columns) = 0;
  // Updates the factors from the sums of a full gradient (R, C): rows (R) = decay rows + (1 -
  // decay) (mean of g² over columns + eps), columns (C) likewise.
  virtual void adafactor_factors(const AdafactorStep& step, std::span<const double> row_sums,
                                 std::span<const double> column_sums, const Tensor& rows,
                                 const Tensor& columns) = 0;
  // Replaces the gradients g (r, c), a part of the matrix from (first_row, first_column) on, by g /
  // sqrt(rows columns / mean(rows)).
  virtual void adafactor_factored_direction(const AdafactorStep& step, const Tensor& grads,
                                            const Tensor& rows, int64_t first_row,
                                            const Tensor& columns, int64_t first_column) = 0;
  // params = kept * params - rate * direction
  virtual void apply_update(double rate, double kept, const Tensor& direction,
                            const Tensor& params) = 0;
};

// Names the calls of its scope for profilers.
class OpRange {
 public:
  OpRange(Ops& ops, const char* name, int64_t number = -1) : ops_(ops) {
    ops_.begin_range(name, number);
  }
  ~OpRange() { ops_.end_range(); }
  OpRange(const OpRange&) = delete;
  OpRange& operator=(const OpRange&) = delete;

 private:
  Ops& ops_;
};

// Creates the CPU backend (Highway and OpenMP; GEMM by the faster library, see ops/cpu/matmul.cc)
// with `threads` threads, at least 1. With oneDNN it creates a compiled GEMM and its scratch at the
// first use of each shape and keeps them. The first bf16 GEMMs create the panels and sums of the
// built-in GEMM (gemm.h). Apart from those, and panels that oneDNN holds during a GEMM, it
// allocates nothing.
std::unique_ptr<Ops> cpu_ops(int threads);

}  // namespace muster::trainer
