// Small models that meshes of 8 ranks can split in every way, and unevenly if that is allowed.
#pragma once

#include "tests/unit/meshes.h"
#include "trainer_core/base/model_config.h"

namespace muster::trainer {

// Returns a Llama with fewer KV heads than some meshes have tensor ranks. The vocabulary and the
// MLP's width are not multiples of any degree.
inline ModelConfig sharded_llama() {
  return {.name = "llama",
          .vocab_size = 61,
          .emb_dim = 6,
          .num_layers = 8,
          .num_query_heads = 8,
          .num_kv_heads = 2,
          .head_dim = 2,
          .mlp_dim = 11};
}

// Returns a GPT with a tied embedding, learned positions, all biases and relative biases, so that
// every kind of parameter exists.
inline ModelConfig sharded_gpt() {
  ModelConfig model = sharded_llama();
  model.name = "gpt";
  model.num_kv_heads = 8;
  model.norm_type = NormType::kLayer;
  model.position_type = PositionType::kLearned;
  model.trainable_position_size = 9;
  model.relative_buckets = {.count = 4, .max_distance = 8};
  model.gated_mlp = false;
  model.qkv_bias = model.out_bias = model.mlp_bias = true;
  model.logits_via_embedding = true;
  return model;
}

// Returns a GLaM whose every second layer has 8 experts.
inline ModelConfig sharded_glam() {
  ModelConfig model = sharded_llama();
  model.name = "glam";
  model.logits_via_embedding = true;
  model.experts = {.count = 8, .per_token = 2, .mlp_dim = 9, .layer_step = 2, .first_layer = 1};
  return model;
}

// Returns whether the degrees of the mesh divide the dimensions that they split.
inline bool allows(const ModelConfig& model, const Mesh& mesh, int32_t pipeline_chunks = 1) {
  const int32_t tensor = mesh.degree(MeshAxis::kTensor);
  return model.num_query_heads % tensor == 0 &&
         (model.num_kv_heads % tensor == 0 || tensor % model.num_kv_heads == 0) &&
         model.experts.count % mesh.degree(MeshAxis::kExpert) == 0 &&
         model.num_layers % (mesh.degree(MeshAxis::kPipeline) * pipeline_chunks) == 0;
}

}  // namespace muster::trainer
