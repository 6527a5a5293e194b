// Adapters of a decoding plan (base/lora.h). They are stored beside the base, and each row of a
// call is computed with the base alone or with one of them. Requests of several adapters therefore
// share a call, and the GEMMs of the base.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer_core/base/lora.h"
#include "trainer_core/base/memory_plan.h"
#include "trainer_core/base/tensor_box.h"
#include "trainer_core/model/param_spec.h"

namespace muster::trainer {

class Ops;
struct TransformerPlan;

// This rank's matrices of an adapter for one GEMM, as offsets in the adapter's buffer, in elements.
struct ServedProduct {
  int64_t columns = 0;  // R: the number of adapted projections times the rank; 0: not adapted
  int64_t a = 0;        // (R, in): the matrices A of the projections
  int64_t b = 0;        // (out, R): their matrices B as one block-diagonal matrix, times the scale
};

struct ServedAdapter {
  LoraConfig lora;
  BufferId block;        // all matrices, of the plan's activation type
  int64_t elements = 0;  // the number of elements of `block`
  std::vector<std::array<ServedProduct, kDenseProducts>> layers;
};

// Adjacent rows of a decoding call with the same adapter.
struct AdapterRows {
  size_t adapter = 0;
  int64_t first = 0;
  int64_t count = 0;
};

// Adds the matrices of plan.served, and the buffers of their GEMMs.
void plan_served_adapters(TransformerPlan& plan);

// Writes this rank's matrices of plan.served[index]. `table` and `values` are the adapter's
// parameters, which are those of the model with the adapter:
// part_of(model_params(model), kTrained).
void load_served_adapter(const TransformerPlan& plan, size_t index,
                         std::span<const ParamSpec> table, std::span<const float> values,
                         Arena& arena, Ops& ops);

}  // namespace muster::trainer
