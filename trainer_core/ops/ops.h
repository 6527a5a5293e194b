// The op table: an abstract class with every operation of a training step, forward and backward.
// op_table.inc lists the operations by family (elementwise_ops.inc, norm_ops.inc, …), and
// op_checks.cc checks their arguments. The CPU backend (cpu_ops()) and the CUDA backend
// (cuda/cuda.h) implement the class; backend.h combines each implementation with its memory.
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
// NaN. GEMMs of bf16 may round their operands. fill, copy, scale, dropout, sums and updates of
// parameters accept either type; the loss only fp32. Matrices and the token table may be bf16, too.
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

// kYes: the operand of a GEMM is stored transposed.
enum class Transpose : uint8_t { kNo, kYes };

// kForward rotates; kBackward applies the transposed rotation to a gradient.
enum class RopeDirection : uint8_t { kForward, kBackward };
// The pairs of a head's elements that rope rotates: i and i + h/2, or 2i and 2i + 1.
enum class RopePairs : uint8_t { kHalves, kInterleaved };

// The type and constants of a norm.
struct NormShape {
  NormType type = NormType::kRms;
  double eps = 1e-5;
  double gain_offset = 0;

  // Returns the number of fp32 elements that a norm of `rows` rows saves for its backward pass.
  int64_t stats(int64_t rows) const { return type == NormType::kLayer ? 2 * rows : rows; }
};

// A norm's parameters or their gradients: gain (d), and for kLayer, bias (d).
struct NormWeights {
  Tensor gain;
  Tensor bias;
};

// An MLP's activation. With a gate, input rows are [gate (m) | up (m)] and the output is f(gate) *
// up; without a gate, input rows are x (m) and the output is f(x).
struct MlpActivation {
  Activation kind = Activation::kSilu;
  bool gated = true;

  int64_t input_width(int64_t m) const { return gated ? 2 * m : m; }
};

// Selects the elements that dropout drops, each with the probability `rate`, by counter-based
// random numbers (common/random/philox.h). These depend only on the key, the location in the model
// and the element's index in its sample, so the same elements are dropped in the backward pass, in
// recomputed layers, and on any mesh.
struct DropoutMask {
  double rate = 0;  // probability in [0, 1)
  uint64_t key = 0;
  uint32_t location = 0;  // identifies this dropout in the model; below 2^18
  SampleElements elements{};
};

// The constants of one update of Adam, including those that depend on the step; optimizer_ops.inc
// has the formulas.
struct AdamStep {
  double learning_rate = 0;
  double b1 = 0;
  double b2 = 0;
  double eps = 0;
  double eps_root = 0;
  double weight_decay = 0;
  double grad_scale = 1;        // factor of every gradient, applied first
  double bias_correction1 = 1;  // 1 - b1^t
  double bias_correction2 = 1;  // 1 - b2^t
  // The random numbers for the stochastic rounding of m to bf16; nullopt: round to nearest.
  struct Noise {
    uint64_t key = 0;
    uint64_t update = 0;  // number of the update
    int64_t first = 0;    // number of the block's first element among all parameters, at least 0
  };
  std::optional<Noise> noise = {};
};

// The constants of one update of Adafactor; optimizer_ops.inc has the formulas.
struct AdafactorStep {
  double decay = 0;  // decay of the running means
  double eps = 0;    // added to every squared gradient
  double grad_scale = 1;
};

// Checks of the operations' arguments, one function per operation of the table (op_checks.cc).
namespace op_checks {
#define MUSTER_OP(result, name, parameters, arguments) void name parameters;
#define MUSTER_UNCHECKED_OP(result, name, parameters, arguments)
#include "trainer_core/ops/op_table.inc"
}  // namespace op_checks

class Ops {
 public:
  virtual ~Ops() = default;

  virtual std::string_view name() const = 0;

  // Memory and order
  // ------------------------------------------------------------------------------------

  // Copies host memory to the backend's memory. The caller may change `from` when the call returns.
  virtual void upload(const void* from, const Tensor& to) = 0;
  // Copies the backend's memory to host memory. Waits for the copy.
  virtual void download(const Tensor& from, void* to) = 0;
  // Waits for all enqueued work.
  virtual void synchronize() = 0;
  // Returns the queue on which this object's calls run, to order other work with them
  // (base/device_memory.h); null if calls are synchronous.
  virtual std::shared_ptr<DeviceQueue> queue() { return nullptr; }
  // Returns a replayer of recorded calls (replay.h), which must be destroyed before this object;
  // null if the backend gains nothing from replays.
  virtual std::shared_ptr<Replayer> make_replayer() { return nullptr; }
  // Begins a named range of calls for profilers (NVTX), which end_range() ends. Ranges nest.
  // `number`: shown after the name unless it is negative. Use OpRange, which ends its range.
  virtual void begin_range(const char* /*name*/, int64_t /*number*/ = -1) {}
  virtual void end_range() {}
  // Returns a line for each operation since the last call that a library normally computes, but did
  // not. Each operation appears once per shape.
  virtual std::vector<std::string> take_notes() { return {}; }

  // GEMM
  // --------------------------------------------------------------------------------------

  // Computes c (M, N) = op(a) op(b), or c += op(a) op(b), where op(a) is (M, K) and op(b) is (K,
  // N). Transpose::kYes means that the operand is stored transposed. If one of the three is bf16,
  // the GEMM is a bf16 GEMM, as in JAX with weights cast to the activations' type: fp32 operands
  // are rounded to bf16 first, sums are fp32, and a bf16 c is written, not added to. Results agree
  // up to summation order on all backends, except that AVX512-BF16 flushes denormals to zero.
  virtual void matmul(const Tensor& a, Transpose transpose_a, const Tensor& b,
                      Transpose transpose_b, const Tensor& c, Accumulate accumulate) = 0;
  // Computes a GEMM and the epilogue, and stores the result in c. Backends that cannot fuse the
  // epilogue run separate operations, whose results may be rounded more often.
  virtual void fused_matmul(const Tensor& a, Transpose transpose_a, const Tensor& b,
                            Transpose transpose_b, const Tensor& c, const Epilogue& epilogue);

  // The operations of the table
  // --------------------------------------------------------------------------------------

  // Each function NAME checks the arguments, then calls the backend's do_NAME.
#define MUSTER_OP(result, name, parameters, arguments) \
  result name parameters {                             \
    op_checks::name arguments;                         \
    return do_##name arguments;                        \
  }
#define MUSTER_UNCHECKED_OP(result, name, parameters, arguments) \
  result name parameters { return do_##name arguments; }
#include "trainer_core/ops/op_table.inc"

 private:
#define MUSTER_OP(result, name, parameters, arguments) virtual result do_##name parameters = 0;
#include "trainer_core/ops/op_table.inc"
};

// A named range (Ops::begin_range) of the calls in its scope.
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

// Creates the operations on the CPU (Highway and OpenMP; GEMMs see ops/cpu/matmul.h) with `threads`
// threads, at least 1. Calls allocate memory in three cases only: if oneDNN computes the GEMMs, the
// first GEMM of each shape creates a compiled GEMM and its scratch; the first bf16 GEMMs create the
// buffers of the built-in GEMM (ops/cpu/gemm.h); and oneDNN allocates buffers during a GEMM.
std::unique_ptr<Ops> cpu_ops(int threads);

}  // namespace muster::trainer
