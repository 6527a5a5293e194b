// Which meshes a training allows: what an axis divides must be divisible by its degree. Pure arithmetic, for errors before anything
// is started.
//
//   tensor      num_query_heads; num_kv_heads or a multiple of it (a head then lies on several ranks)
//   sequence    the query and KV heads of a tensor rank; the positions of a context rank
//   context     twice its degree divides max_target_length: a rank has one early and one late chunk
//   tensor      also the rows of a micro-batch on a rank, which are split between products; it is no more than the MLP's columns
//               and the vocabulary, which may be cut unevenly
//   expert      num_experts
//   pipeline    num_decoder_layers, times the runs of layers that a stage has; where those are several, the micro-batches of a step
//
// data and fsdp divide the global batch, which is judged with the batch's keys.
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
  int32_t moe_mlp_dim = 1;  // of an expert
  int32_t vocab_size = 1;
  int32_t seq_len = 1;
  int32_t sequences = 1;      // of a rank's micro-batch
  int32_t micro_batches = 1;  // of a step
  int32_t repeats = 1;        // runs of layers of a pipeline stage
};
MeshDemands mesh_demands(const ModelConfig& model, int32_t seq_len, int32_t sequences);

// A sentence for each rule that the mesh breaks, with its keys and their values; empty: none. Requires degrees of at least 1.
std::vector<std::string> mesh_conflicts(const MeshDemands& demands, const MeshShape& shape);

// The meshes of as many nodes and ranks per node that work and differ least from `shape`, whose degrees may be anything: the sum of
// the logarithms of what a degree grows or shrinks by, axes other than data and fsdp counting twice. At most `count`, the nearest
// first; kNearMeshesTried are asked for at most.
constexpr int kNearMeshesTried = 2000;  // a fraction of a second where a job is resolved on each
std::vector<MeshShape> nearest_meshes(int32_t nodes, int32_t ranks_per_node, const MeshShape& shape,
                                      size_t count,
                                      const std::function<bool(const MeshShape&)>& works);

// "ici_fsdp_parallelism=4 ici_tensor_parallelism=2": the keys that are not 1.
std::string mesh_keys(const MeshShape& shape);

}  // namespace muster::trainer
