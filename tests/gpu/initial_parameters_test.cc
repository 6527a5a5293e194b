// Initial parameters drawn on a device have the CPU's bits, for every kind of parameter and every
// kind of mesh.
#include "trainer_core/startup/initial_parameters.h"

#include <bit>
#include <initializer_list>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/parallel/mesh_configs.h"
#include "trainer_core/ops/backend.h"

namespace muster::trainer {
namespace {

// Returns the values of a rank's block of shards, drawn by init_part() box by box, with 0 in
// between.
std::vector<float> drawn_by_host(const ShardLayout& layout, uint64_t seed) {
  std::vector<float> block(static_cast<size_t>(layout.elements()));
  for (const ShardPiece& piece : layout.pieces())
    for (const TensorBox& box : layout.boxes(piece))
      init_part(layout.table()[piece.param], seed, box, block.data() + box.offset);
  return block;
}

std::vector<float> drawn_by(Backend& backend, const TrainConfig& config,
                            const ShardLayout& layout) {
  const auto elements = static_cast<size_t>(layout.elements());
  const auto memory = backend.memory().allocate(elements * sizeof(float));
  draw_parameters(backend.ops(), config, layout, {static_cast<float*>(memory.get()), elements});
  backend.ops().synchronize();
  std::vector<float> block(elements);
  backend.memory().download(memory.get(), block.data(), elements * sizeof(float));
  return block;
}

size_t different_bits(const std::vector<float>& a, const std::vector<float>& b) {
  size_t different = 0;
  for (size_t i = 0; i < a.size(); ++i)
    different += std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]);
  return different;
}

TEST(InitialParameters, EqualTheHostsOnEveryMesh) {
  const auto gpu = gpu_backend({.scratch_bytes = size_t{4} << 20}).value();
  const auto cpu = cpu_backend(2);
  const std::initializer_list<MeshShape> meshes = {
      mesh({}),
      mesh({{MeshAxis::kFsdp, 4}}),
      mesh({{MeshAxis::kTensor, 2}}),
      mesh({{MeshAxis::kFsdp, 2}, {MeshAxis::kTensor, 2}}),
      mesh({{MeshAxis::kData, 2}, {MeshAxis::kFsdp, 2}}),
      mesh({{MeshAxis::kPipeline, 2}})};
  for (const ModelConfig& model : {sharded_llama(), sharded_gpt(), sharded_glam()}) {
    for (const MeshShape& shape : meshes) {
      TrainConfig config;
      config.model = model;
      config.init_weights_seed = 11;
      const Mesh ranks = mesh_of(shape);
      for (int32_t rank = 0; rank < ranks.ranks(); ++rank) {
        const auto layout = ShardLayout::of(model, ranks, rank, DType::kF32);
        const auto expected = drawn_by_host(layout, config.init_weights_seed);
        EXPECT_EQ(different_bits(drawn_by(*gpu, config, layout), expected), 0U)
            << "on the device: " << ranks.to_string() << ", rank " << rank;
        EXPECT_EQ(different_bits(drawn_by(*cpu, config, layout), expected), 0U)
            << "on the CPU: " << ranks.to_string() << ", rank " << rank;
      }
    }
  }
}

}  // namespace
}  // namespace muster::trainer
