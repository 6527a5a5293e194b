#include "trainer_core/model/shard_layout.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/unit/sanitized.h"
#include "tests/unit/trainer_core/model/sharded_models.h"

namespace muster::trainer {
namespace {

struct LayoutCase {
  std::string name;
  ModelConfig model;
  int32_t pipeline_chunks = 1;
};
void PrintTo(const LayoutCase& test, std::ostream* out) { *out << test.name; }

std::vector<ShardLayout> layouts_of(const LayoutCase& test, const Mesh& mesh,
                                    DType dtype = DType::kF32) {
  std::vector<ShardLayout> layouts;
  for (int32_t rank = 0; rank < mesh.ranks(); ++rank)
    layouts.push_back(ShardLayout::of(test.model, mesh, rank, dtype, test.pipeline_chunks));
  return layouts;
}

// The part of each parameter that the rank computes with.
std::map<size_t, TensorBox> boxes_of(const ShardLayout& layout) {
  std::map<size_t, TensorBox> boxes;
  for (const ParamBucket& bucket : layout.buckets()) {
    for (const ShardRow& row : bucket.rows) {
      EXPECT_TRUE(boxes.emplace(row.param, row.box).second) << row.box.tensor << " is there twice";
      boxes[row.param].offset = 0;
    }
  }
  return boxes;
}

class AllMeshes : public testing::TestWithParam<LayoutCase> {
 protected:
  // Calls body(mesh, layouts of its ranks).
  template <class Body>
  void for_meshes(std::initializer_list<int32_t> sizes, const Body& body) {
    const LayoutCase& test = GetParam();
    int meshes = 0;
    for (const int32_t size : sizes) {
      const std::vector<Degrees> all = factorisations(size);
      // All of 8 ranks; a sample of larger meshes.
      const size_t step = (size <= 8 ? 1 : size <= 16 ? 5 : 37) * (kSanitized ? 3 : 1);
      for (size_t i = 0; i < all.size(); i += step) {
        const Mesh mesh = mesh_with(all[i]);
        if (!allows(test.model, mesh, test.pipeline_chunks)) continue;
        ++meshes;
        body(mesh, layouts_of(test, mesh));
        ASSERT_FALSE(HasFailure()) << mesh.to_string();
      }
    }
    EXPECT_GT(meshes, kSanitized ? 6 : 20);
  }
};

TEST_P(AllMeshes, EveryElementIsStoredOncePerDataCoordinate) {
  const std::vector<ParamSpec> table = model_params(GetParam().model);
  for_meshes({1, 8, 16, 64}, [&](const Mesh& mesh, const std::vector<ShardLayout>& layouts) {
    const int32_t rank_models = mesh.degree(MeshAxis::kData);
    std::vector<std::vector<int>> stored(static_cast<size_t>(rank_models));
    for (auto& counts : stored) counts.resize(static_cast<size_t>(parameter_count(table)));
    for (int32_t rank = 0; rank < mesh.ranks(); ++rank) {
      const ShardLayout& layout = layouts[static_cast<size_t>(rank)];
      const auto data = static_cast<size_t>(mesh.coordinate(rank)[0]);
      std::vector<bool> used(static_cast<size_t>(layout.elements()));
      for (const ShardPiece& piece : layout.pieces()) {
        const ParamSpec& spec = table[piece.param];
        int64_t elements = 0;
        for (const TensorBox& box : layout.boxes(piece)) {
          ASSERT_EQ(box.offset, piece.offset + elements);
          elements += box.elements();
          const CommonRuns runs(whole_box(spec), box);
          for (int64_t i = 0; i < runs.count(); ++i) {
            for (int64_t j = 0; j < runs.length(); ++j)
              ++stored[data][static_cast<size_t>(spec.offset + runs.at(i).from + j)];
          }
          for (int64_t i = box.offset; i < box.offset + box.elements(); ++i) {
            ASSERT_FALSE(used.at(static_cast<size_t>(i))) << "two elements at one offset";
            used[static_cast<size_t>(i)] = true;
          }
        }
        ASSERT_EQ(elements, piece.count);
      }
    }
    for (const auto& counts : stored) ASSERT_THAT(counts, testing::Each(1)) << mesh.to_string();
  });
}

TEST_P(AllMeshes, AGroupComputesWithTheSameBoxesAndItsShardsAreTheBucket) {
  for_meshes({8, 16}, [&](const Mesh& mesh, const std::vector<ShardLayout>& layouts) {
    std::vector<std::map<size_t, TensorBox>> boxes;
    for (const ShardLayout& layout : layouts) boxes.push_back(boxes_of(layout));
    for (int32_t rank = 0; rank < mesh.ranks(); ++rank) {
      const ShardLayout& layout = layouts[static_cast<size_t>(rank)];
      for (size_t b = 0; b < layout.buckets().size(); ++b) {
        const ParamBucket& bucket = layout.buckets()[b];
        const std::vector<int32_t> members = mesh.group(rank, bucket.group);
        ASSERT_EQ(static_cast<int32_t>(members.size()), bucket.group_size);
        // Exactly the ranks of the same data coordinate that have the same box of each row.
        for (const ShardRow& row : bucket.rows) {
          std::vector<int32_t> same;
          for (int32_t other = 0; other < mesh.ranks(); ++other) {
            const auto& theirs = boxes[static_cast<size_t>(other)];
            const auto found = theirs.find(row.param);
            if (mesh.coordinate(other)[0] == mesh.coordinate(rank)[0] && found != theirs.end() &&
                found->second == boxes[static_cast<size_t>(rank)].at(row.param))
              same.push_back(other);
          }
          ASSERT_THAT(members, testing::UnorderedElementsAreArray(same)) << row.box.tensor;
        }
        // Their shards in order are the rows without gaps, then padding.
        int64_t at = 0;
        for (const int32_t member : members) {
          const ShardLayout& theirs = layouts[static_cast<size_t>(member)];
          const auto twin = std::ranges::find_if(theirs.buckets(), [&](const ParamBucket& other) {
            return other.rows.front().param == bucket.rows.front().param;
          });
          ASSERT_NE(twin, theirs.buckets().end());
          ASSERT_EQ(twin->elements, bucket.elements);
          ASSERT_EQ(twin->shard_elements, bucket.shard_elements);
          const auto index = static_cast<size_t>(twin - theirs.buckets().begin());
          for (const ShardPiece& piece : theirs.pieces()) {
            if (piece.bucket != index) continue;
            ASSERT_EQ(theirs.row(piece).box.offset + piece.first, at);
            ASSERT_GE(piece.offset, twin->shard_offset);
            ASSERT_LE(piece.offset + piece.count, twin->shard_offset + twin->shard_elements);
            at += piece.count;
          }
        }
        ASSERT_EQ(at, bucket.elements);
        ASSERT_LE(bucket.elements, bucket.shard_elements * bucket.group_size);
        ASSERT_LT(bucket.shard_elements * bucket.group_size - bucket.elements, bucket.group_size);
      }
    }
  });
}

TEST_P(AllMeshes, BlocksAreBucketsInOrderAndRowsHaveNoGaps) {
  for_meshes({1, 8, 64}, [&](const Mesh&, const std::vector<ShardLayout>& layouts) {
    for (const ShardLayout& layout : layouts) {
      size_t block = 0;
      int64_t offset = 0;
      std::set<std::tuple<size_t, GroupAxes, DType>> keys;
      for (const ParamBucket& bucket : layout.buckets()) {
        ASSERT_GE(bucket.block, block);
        block = bucket.block;
        ASSERT_TRUE(keys.emplace(block, bucket.group, bucket.gathered).second) << "one would do";
        ASSERT_EQ(bucket.shard_offset, offset);
        offset += bucket.shard_elements;
        int64_t elements = 0;
        for (size_t i = 0; i < bucket.rows.size(); ++i) {
          const ShardRow& row = bucket.rows[i];
          ASSERT_EQ(layout.table()[row.param].block, layout.blocks()[block]);
          ASSERT_EQ(row.box.tensor, layout.table()[row.param].name);
          ASSERT_EQ(row.box.offset, elements);
          ASSERT_TRUE(i == 0 || bucket.rows[i - 1].param < row.param);
          elements += row.box.elements();
        }
        ASSERT_EQ(elements, bucket.elements);
      }
      ASSERT_EQ(offset, layout.elements());
      ASSERT_EQ(block + 1, layout.blocks().size());
    }
  });
}

// The ranks that sum over a whole tensor have every element once.
TEST_P(AllMeshes, ATensorsGroupHasAllOfIt) {
  for_meshes({8, 16}, [&](const Mesh& mesh, const std::vector<ShardLayout>& layouts) {
    std::vector<std::vector<int64_t>> counts;  // by rank, then parameter
    for (const ShardLayout& layout : layouts) {
      auto& mine = counts.emplace_back(layout.table().size());
      for (const ShardPiece& piece : layout.pieces()) mine[piece.param] += piece.count;
    }
    for (int32_t rank = 0; rank < mesh.ranks(); ++rank) {
      const ShardLayout& layout = layouts[static_cast<size_t>(rank)];
      for (const ParamBucket& bucket : layout.buckets()) {
        for (const ShardRow& row : bucket.rows) {
          int64_t elements = 0;
          for (const int32_t member : mesh.group(rank, bucket.tensor_group))
            elements += counts[static_cast<size_t>(member)][row.param];
          ASSERT_EQ(elements, layout.table()[row.param].elements()) << row.box.tensor;
        }
      }
    }
  });
}

// Queries are with their own keys and values, and every rank has as many of each.
TEST_P(AllMeshes, HeadsAreSplitForAttention) {
  const ModelConfig& model = GetParam().model;
  const int32_t per_kv_head = model.num_query_heads / model.num_kv_heads;
  for_meshes({8, 64}, [&](const Mesh& mesh, const std::vector<ShardLayout>& layouts) {
    const int32_t tensor = mesh.degree(MeshAxis::kTensor);
    for (const ShardLayout& layout : layouts) {
      for (const auto& [param, box] : boxes_of(layout)) {
        if (!box.tensor.ends_with("q_proj.weight")) continue;
        const TensorBox k = boxes_of(layout).at(param + 1), v = boxes_of(layout).at(param + 2);
        ASSERT_EQ(k.begin, v.begin);
        ASSERT_EQ(k.extent, v.extent);
        ASSERT_EQ(box.extent[0], model.num_query_heads / tensor * model.head_dim);
        const int64_t first = box.begin[0] / model.head_dim / per_kv_head;
        const int64_t last = ((box.begin[0] + box.extent[0]) / model.head_dim - 1) / per_kv_head;
        ASSERT_EQ(k.begin[0], first * model.head_dim);
        ASSERT_EQ(k.begin[0] + k.extent[0], (last + 1) * model.head_dim);
      }
    }
  });
}

// An element's initial value does not depend on the rank that draws it, nor on the other elements.
TEST_P(AllMeshes, InitialValuesAreTheModels) {
  constexpr uint64_t kSeed = 11;
  const std::vector<ParamSpec> table = model_params(GetParam().model);
  std::vector<float> model(static_cast<size_t>(parameter_count(table)));
  init_params(table, kSeed, model.data());
  for_meshes({8}, [&](const Mesh&, const std::vector<ShardLayout>& layouts) {
    for (const ShardLayout& layout : layouts) {
      for (const ShardPiece& piece : layout.pieces()) {
        const ParamSpec& spec = table[piece.param];
        for (const TensorBox& box : layout.boxes(piece)) {
          std::vector<float> values(static_cast<size_t>(box.elements()));
          init_part(spec, kSeed, box, values.data());
          const CommonRuns runs(whole_box(spec), box);
          for (int64_t i = 0; i < runs.count(); ++i) {
            const auto [from, to] = runs.at(i);
            ASSERT_TRUE(std::equal(values.begin() + to, values.begin() + to + runs.length(),
                                   model.begin() + spec.offset + from))
                << box.tensor;
          }
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Models, AllMeshes,
                         testing::Values(LayoutCase{"llama", sharded_llama()},
                                         LayoutCase{"tied_gpt", sharded_gpt()},
                                         LayoutCase{"glam", sharded_glam()},
                                         LayoutCase{"interleaved", sharded_llama(), 2}),
                         [](const auto& test) { return test.param.name; });

TEST(ShardLayout, OfOneRankIsTheTable) {
  for (const ModelConfig& model : {sharded_llama(), sharded_gpt(), sharded_glam()}) {
    const std::vector<ParamSpec> table = model_params(model);
    for (const ShardLayout& layout :
         {ShardLayout::of(model, mesh_with({1, 1, 1, 1, 1, 1, 1}), 0, DType::kBf16),
          ShardLayout::of(model, mesh_with({4, 1, 1, 1, 1, 1, 1}), 3, DType::kF32),
          ShardLayout::whole(table)}) {
      EXPECT_EQ(layout.elements(), parameter_count(table));
      ASSERT_EQ(layout.pieces().size(), table.size());
      ASSERT_EQ(layout.buckets().size(), layout.blocks().size());
      for (size_t i = 0; i < table.size(); ++i) {
        const ShardPiece& piece = layout.pieces()[i];
        EXPECT_EQ(piece.param, i);
        EXPECT_EQ(piece.offset, table[i].offset);
        EXPECT_EQ(piece.count, table[i].elements());
        EXPECT_EQ(layout.boxes(piece), std::vector<TensorBox>{whole_box(table[i])});
      }
      for (size_t block = 0; block < layout.blocks().size(); ++block) {
        EXPECT_FALSE(layout.gathers(block));
        EXPECT_EQ(layout.buckets()[block].gathered, DType::kF32);
      }
    }
  }
}

TEST(ShardLayout, Bf16GathersMatricesOnlyAndNoQuantizedOnes) {
  ModelConfig model = sharded_llama();
  const Mesh mesh = mesh_with({1, 1, 4, 1, 1, 1, 2});
  const ShardLayout layout = ShardLayout::of(model, mesh, 5, DType::kBf16);
  ASSERT_TRUE(layout.gathers(1));
  for (const ParamBucket& bucket : layout.buckets()) {
    for (const ShardRow& row : bucket.rows)
      EXPECT_EQ(bucket.gathered, layout.table()[row.param].rounded_type()) << row.box.tensor;
  }
  // Queries, keys, values, gate and up are adjacent in their bucket.
  const auto matrices = std::ranges::find_if(layout.buckets(), [](const ParamBucket& bucket) {
    return bucket.block == 1 && bucket.gathered == DType::kBf16;
  });
  std::vector<std::string> names;
  for (const ShardRow& row : matrices->rows)
    names.push_back(row.box.tensor.substr(row.box.tensor.find('.', 13) + 1));
  EXPECT_THAT(names, testing::ElementsAre("self_attn.q_proj.weight", "self_attn.k_proj.weight",
                                          "self_attn.v_proj.weight", "self_attn.o_proj.weight",
                                          "mlp.gate_proj.weight", "mlp.up_proj.weight",
                                          "mlp.down_proj.weight"));
  model.quantization.type = QuantizationType::kInt8;
  const ShardLayout quantized = ShardLayout::of(model, mesh, 5, DType::kBf16);
  for (const ParamBucket& bucket : quantized.buckets()) EXPECT_EQ(bucket.gathered, DType::kF32);
}

// Shards of a bucket are not whole blocks, or a rank's shard is padding alone.
TEST(ShardLayout, NoBlockIsOnTwoRanks) {
  ModelConfig model = sharded_llama();
  model.emb_dim = 32;
  model.head_dim = 16;
  model.num_query_heads = model.num_kv_heads = 2;
  for (const int32_t mlp_dim : {258, 2}) {
    model.mlp_dim = mlp_dim;
    model.lora = {.rank = 2,
                  .alpha = 2,
                  .targets = lora_targets(model, LoraLayers::kAll),
                  .weight_type = WeightType::kNf4};
    ASSERT_TRUE(check_weight_blocks(model, 1).ok());
    for (const int32_t fsdp : {3, 8, 64}) {
      int64_t padding = 0;
      for (int32_t rank = 0; rank < fsdp; ++rank) {
        const ShardLayout layout =
            ShardLayout::of(model, mesh_with({1, 1, fsdp, 1, 1, 1, 1}), rank, DType::kBf16, 1,
                            DType::kF32, ParamPart::kQuantized);
        padding += layout.elements();
        ASSERT_FALSE(layout.pieces().empty() && rank == 0);
        for (const ShardPiece& piece : layout.pieces()) {
          ASSERT_EQ(piece.first % kWeightBlock, 0) << "fsdp=" << fsdp << " rank " << rank;
          ASSERT_EQ(piece.count % kWeightBlock, 0) << "fsdp=" << fsdp << " rank " << rank;
          ASSERT_EQ(piece.offset % kWeightBlock, 0) << "fsdp=" << fsdp << " rank " << rank;
          padding -= piece.count;
        }
      }
      EXPECT_GT(padding, 0) << "fsdp=" << fsdp << " mlp_dim=" << mlp_dim;
    }
  }
}

// 61 rows on 8 ranks: each rank has 1 to 8.
TEST(ShardLayout, AVocabularyIsSplitUnevenly) {
  const Mesh mesh = mesh_with({1, 1, 1, 1, 1, 1, 8});
  int64_t begin = 0;
  for (int32_t rank = 0; rank < 8; ++rank) {
    const auto boxes = boxes_of(ShardLayout::of(sharded_llama(), mesh, rank, DType::kF32));
    const TensorBox& rows = boxes.at(0);
    EXPECT_EQ(rows.begin[0], begin);
    EXPECT_THAT(rows.extent[0], testing::AnyOf(7, 8));
    begin += rows.extent[0];
  }
  EXPECT_EQ(begin, 61);
}

TEST(ShardLayout, AnInvalidMeshEndsTheProcess) {
  EXPECT_DEATH(ShardLayout::of(sharded_llama(), mesh_with({1, 1, 1, 1, 1, 1, 3}), 0, DType::kF32),
               "8 heads and 2 KV heads on 3 ranks");
  EXPECT_DEATH(ShardLayout::of(sharded_llama(), mesh_with({1, 3, 1, 1, 1, 1, 1}), 0, DType::kF32),
               "8 layers in 3 chunks");
}

}  // namespace
}  // namespace muster::trainer
