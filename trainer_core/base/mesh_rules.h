// Which meshes a training allows: an axis' degree must divide the sizes that it splits. Pure
// arithmetic, so that errors appear before anything is started.
//
//   tensor      num_query_heads; num_kv_heads or a multiple of it (several ranks then share a
//               head); the rows of a micro-batch on a rank, which are split between GEMMs. It is at
//               most the MLP's columns and the vocabulary, which may be split unevenly.
//   sequence    the query and KV heads of a tensor rank; the positions of a context rank
//   context     twice its degree divides max_target_length: a rank has one early and one late chunk
//   expert      num_experts
//   pipeline    its degree times the layer runs per stage divides num_decoder_layers; with several
//               runs per stage, the degree also divides the micro-batches of a step
//
// data and fsdp divide the global batch, which is validated with the batch's keys.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/mesh.h"
#include "trainer_core/base/model_config.h"

namespace muster::trainer {

struct MeshDemands {
  int32_t query_heads = 1;
  int32_t kv_heads = 1;
  int32_t experts = 1;  // 1: none
  int32_t layers = 1;
  int32_t mlp_dim = 1;
  int32_t moe_mlp_dim = 1;  // an expert's width
  int32_t vocab_size = 1;
  int32_t seq_len = 1;
  int32_t sequences = 1;      // per micro-batch of a rank
  int32_t micro_batches = 1;  // per step
  int32_t repeats = 1;        // runs of layers of a pipeline stage
};
MeshDemands mesh_demands(const ModelConfig& model, int32_t seq_len, int32_t sequences);

// Returns a sentence for each violated rule, with its keys and their values. Requires degrees of at
// least 1.
std::vector<std::string> mesh_conflicts(const MeshDemands& demands, const MeshShape& shape);

// Returns valid meshes of the same number of nodes and ranks per node that differ least from
// `shape`, whose degrees may have any value. The difference is the sum of the logarithms of each
// degree's change; axes other than data and fsdp count twice. Returns at most `count`, nearest
// first; checks at most kNearMeshesTried.
// Takes less than a second, even if `works` resolves a job for each mesh.
constexpr int kNearMeshesTried = 2000;
std::vector<MeshShape> nearest_meshes(int32_t nodes, int32_t ranks_per_node, const MeshShape& shape,
                                      size_t count,
                                      const std::function<bool(const MeshShape&)>& works);

// Formats the keys whose values are not 1: "ici_fsdp_parallelism=4 ici_tensor_parallelism=2".
std::string mesh_keys(const MeshShape& shape);

}  // namespace muster::trainer
