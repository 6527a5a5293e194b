// Random adapters, for the tests of this folder.
#pragma once

#include "tests/unit/trainer_core/generation/test_engine.h"
#include "tests/unit/trainer_core/model/transformer_fixture.h"

namespace muster::trainer {

inline TestAdapter random_adapter(ModelConfig model, const LoraConfig& lora, uint64_t stream) {
  model.lora = lora;
  TestAdapter adapter{.model = model, .table = part_of(model_params(model), ParamPart::kTrained)};
  adapter.values.resize(static_cast<size_t>(parameter_count(adapter.table)));
  fill_random(stream, adapter.values, 0.4F);
  return adapter;
}

}  // namespace muster::trainer
