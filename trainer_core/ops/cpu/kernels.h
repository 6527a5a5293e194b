// The CPU kernels: serial, over ranges of rows or elements, each dispatched to the best instruction
// set of the machine. cpu_ops.cc checks shapes and splits the ranges among threads. Formulas are in
// ops/ops.h.
#pragma once

#include <cstdint>

#include "trainer_core/ops/ops.h"

namespace muster::trainer::cpu {

// elementwise.cc
void add_range(int64_t n, const float* x, float* y);     // y += x
double sum_range(int64_t n, const float* x);             // fp64 accumulators
double sum_of_squares_range(int64_t n, const float* x);  // fp64 accumulators

// norm.cc: `rows` rows of `width`. `delta` may be null; then `sum` is not written.
struct NormForward {
  int64_t width;
  float eps;
  const float* x;
  const float* delta;
  const float* gain;
  float* sum;
  float* y;
  float* rstd;
};
void rms_norm_rows(int64_t begin, int64_t end, const NormForward& args);
struct NormBackward {
  int64_t width;
  const float* dy;
  const float* x;
  const float* gain;
  const float* rstd;
  float* dx;
};
// Adds these rows' part of dgain to `dgain`.
void rms_norm_backward_rows(int64_t begin, int64_t end, const NormBackward& args, float* dgain);

// rope.cc: rows [begin, end) of qkv. `sign` is 1 forward and -1 backward.
void rope_rows(int64_t begin, int64_t end, const AttentionShape& shape, const float* cos,
               const float* sin, float sign, float* qkv);

// attention_forward.cc: tasks are (sequence, query head) pairs; `scratch` holds forward_elements().
struct AttentionForward {
  AttentionShape shape;
  const float* qkv;
  float* out;
  float* lse;
};
void attention_tasks(int64_t begin, int64_t end, const AttentionForward& args, float* scratch);
// attention_backward.cc: tasks are (sequence, key/value head) pairs; `scratch` holds
// backward_elements().
struct AttentionBackward {
  AttentionShape shape;
  const float* qkv;
  const float* out;
  const float* lse;
  const float* dout;
  float* dqkv;
};
void attention_backward_tasks(int64_t begin, int64_t end, const AttentionBackward& args,
                              float* scratch);

// swiglu.cc
void swiglu_rows(int64_t begin, int64_t end, int64_t width, const float* gate_up, float* out);
void swiglu_backward_rows(int64_t begin, int64_t end, int64_t width, const float* dout,
                          float* gate_up);

// cross_entropy.cc: `gradient` says whether logits become gradients.
struct CrossEntropy {
  int64_t vocab;
  float* logits;
  const int32_t* targets;
  const float* weights;
  float* losses;
  bool gradient;
};
void cross_entropy_rows(int64_t begin, int64_t end, const CrossEntropy& args);

// adamw.cc: elements [0, n) of the four blocks.
void adamw_range(int64_t n, const AdamWStep& step, const float* grads, float* params, float* m,
                 float* v);

// embedding.cc
void embedding_rows(int64_t begin, int64_t end, int64_t width, const int32_t* tokens,
                    const float* table, float* out);
// Adds columns [begin, end) of all `rows` rows.
void embedding_backward_columns(int64_t begin, int64_t end, int64_t rows, int64_t width,
                                const int32_t* tokens, const float* dout, float* dtable);

}  // namespace muster::trainer::cpu
