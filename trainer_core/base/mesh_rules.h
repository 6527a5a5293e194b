// The rules by which a job's meshes are valid: the degree of an axis must divide the sizes that the
// axis splits. The checks are pure arithmetic, so errors appear before anything is started. Each
// axis has these rules; "divides" means that the axis's degree divides the listed sizes:
//
//   tensor      divides num_query_heads; divides num_kv_heads or is a multiple of it (several
//               ranks then share a KV head); divides the rows of a micro-batch on a rank. It is at
//               most the MLP's width and the vocabulary's size, which may be split unevenly.
//   sequence    divides the query and the KV heads of a tensor rank, and the positions of a
//               context rank
//   context     twice its degree divides max_target_length: each rank has one early and one late
//               chunk of the sequence
//   expert      divides num_experts
//   pipeline    its degree times the layer runs per stage divides num_decoder_layers; with several
//               runs per stage, the degree also divides the micro-batches of a step
//
// The data and fsdp axes divide the global batch, which is validated with the keys of the batch.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/job/mesh.h"
#include "trainer_core/base/model_config.h"

namespace muster::trainer {

// The maximum number of processes that divide a model for generation (--tensor-parallel), which are
// those of one host.
constexpr int32_t kTensorRanksMax = 64;

// The sizes of a model and a batch that a mesh must divide.
struct MeshDemands {
  int32_t query_heads = 1;
  int32_t kv_heads = 1;
  int32_t experts = 1;  // 1: none
  int32_t layers = 1;
  int32_t mlp_dim = 1;
  int32_t moe_mlp_dim = 1;  // MLP width of an expert
  int32_t vocab_size = 1;
  int32_t seq_len = 1;
  int32_t sequences = 1;      // per micro-batch of a rank
  int32_t micro_batches = 1;  // per step
  int32_t repeats = 1;        // layer runs per pipeline stage (num_pipeline_repeats)
};
// Returns the demands of a model and of micro-batches of `sequences` sequences of `seq_len` tokens;
// micro_batches and repeats stay 1.
MeshDemands mesh_demands(const ModelConfig& model, int32_t seq_len, int32_t sequences);

// Returns one sentence for each violated rule, with the keys and their values; empty if the mesh is
// valid. Requires degrees of at least 1.
std::vector<std::string> mesh_conflicts(const MeshDemands& demands, const MeshShape& shape);

// The maximum number of candidates that nearest_meshes() checks, so that it takes less than a
// second even if `works` resolves a complete job for each candidate.
constexpr int kNearMeshesTried = 2000;
// Returns the meshes of `nodes` nodes with `ranks_per_node` ranks each for which `works` returns
// true and that differ least from `shape`, nearest first and at most `count`. The degrees of
// `shape` may have any value. The difference is the sum, over all axes, of the absolute logarithm
// of the ratio between the two degrees; axes other than data and fsdp count twice.
std::vector<MeshShape> nearest_meshes(int32_t nodes, int32_t ranks_per_node, const MeshShape& shape,
                                      size_t count,
                                      const std::function<bool(const MeshShape&)>& works);

// Formats the mesh's keys whose values are not 1: "ici_fsdp_parallelism=4
// ici_tensor_parallelism=2".
std::string format_mesh_keys(const MeshShape& shape);

}  // namespace muster::trainer
