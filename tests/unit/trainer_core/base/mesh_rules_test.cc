#include "trainer_core/base/mesh_rules.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// A Llama with grouped queries, and with experts.
constexpr MeshDemands kDense = {.query_heads = 32,
                                .kv_heads = 8,
                                .experts = 1,
                                .layers = 32,
                                .mlp_dim = 14336,
                                .vocab_size = 32000,
                                .seq_len = 4096,
                                .sequences = 1};

MeshShape shape_of(std::initializer_list<std::pair<MeshAxis, int32_t>> degrees) {
  MeshShape shape;
  for (const auto& [axis, degree] : degrees) shape.ici[static_cast<size_t>(axis)] = degree;
  return shape;
}

TEST(MeshRules, DivisorsAreAllowed) {
  EXPECT_THAT(mesh_conflicts(kDense, {}), IsEmpty());
  for (const auto& [axis, degree] :
       std::vector<std::pair<MeshAxis, int32_t>>{{MeshAxis::kTensor, 8},
                                                 {MeshAxis::kTensor, 32},
                                                 {MeshAxis::kSequence, 8},
                                                 {MeshAxis::kContext, 2048},
                                                 {MeshAxis::kPipeline, 16},
                                                 {MeshAxis::kData, 7},
                                                 {MeshAxis::kFsdp, 3}})
    EXPECT_THAT(mesh_conflicts(kDense, shape_of({{axis, degree}})), IsEmpty()) << degree;
  EXPECT_THAT(
      mesh_conflicts(
          kDense,
          shape_of({{MeshAxis::kTensor, 4}, {MeshAxis::kSequence, 2}, {MeshAxis::kContext, 4}})),
      IsEmpty());
}

TEST(MeshRules, EachRuleNamesItsKeysAndValues) {
  struct Case {
    MeshShape shape;
    std::vector<std::string> expected;
  };
  const std::vector<Case> cases = {
      {shape_of({{MeshAxis::kTensor, 3}}),
       {"ici_tensor_parallelism is 3", "base_num_query_heads is 32"}},
      {shape_of({{MeshAxis::kTensor, 64}}),
       {"ici_tensor_parallelism is 64", "base_num_query_heads is 32"}},
      {shape_of({{MeshAxis::kTensor, 8}, {MeshAxis::kSequence, 2}}),
       {"ici_sequence_parallelism is 2",
        "4 query heads and 1 KV heads (ici_tensor_parallelism is 8)"}},
      {shape_of({{MeshAxis::kContext, 3}}),
       {"ici_context_parallelism is 3", "max_target_length is 4096", "multiple of 6"}},
      {shape_of({{MeshAxis::kExpert, 2}}), {"ici_expert_parallelism is 2", "no experts"}},
      {shape_of({{MeshAxis::kPipeline, 5}}),
       {"ici_pipeline_parallelism is 5", "base_num_decoder_layers is 32"}},
  };
  for (const Case& bad : cases) {
    const auto conflicts = mesh_conflicts(kDense, bad.shape);
    ASSERT_THAT(conflicts, testing::Not(IsEmpty())) << bad.expected.front();
    for (const std::string& part : bad.expected)
      EXPECT_THAT(conflicts, testing::Contains(HasSubstr(part)));
  }
  MeshShape between;
  between.dcn.back() = 3;
  EXPECT_THAT(mesh_conflicts(kDense, between),
              testing::Contains(HasSubstr("dcn_tensor_parallelism is 3")));
  MeshDemands odd = kDense;
  odd.seq_len = 6;
  EXPECT_THAT(mesh_conflicts(odd, shape_of({{MeshAxis::kTensor, 4}})),
              ElementsAre(AllOf(HasSubstr("6 tokens"), HasSubstr("1 sequences"))));
  odd.seq_len = 12;
  EXPECT_THAT(mesh_conflicts(odd, shape_of({{MeshAxis::kContext, 6}, {MeshAxis::kSequence, 4}})),
              testing::Contains(
                  AllOf(HasSubstr("2 positions"), HasSubstr("ici_context_parallelism is 6"))));
  MeshDemands interleaved = kDense;
  interleaved.repeats = 3, interleaved.micro_batches = 6;
  EXPECT_THAT(
      mesh_conflicts(interleaved, shape_of({{MeshAxis::kPipeline, 4}})),
      ElementsAre(
          AllOf(HasSubstr("num_pipeline_repeats is 3"), HasSubstr("base_num_decoder_layers is 32")),
          AllOf(HasSubstr("num_pipeline_repeats is 3"), HasSubstr("6 micro-batches"))));
  EXPECT_THAT(mesh_conflicts(interleaved, {}), IsEmpty());
  MeshDemands experts = kDense;
  experts.experts = 6;
  experts.moe_mlp_dim = 4;
  EXPECT_THAT(mesh_conflicts(experts, shape_of({{MeshAxis::kExpert, 4}})),
              ElementsAre(HasSubstr("num_experts is 6")));
  EXPECT_THAT(
      mesh_conflicts(experts, shape_of({{MeshAxis::kTensor, 8}})),
      ElementsAre("ici_tensor_parallelism is 8, but base_moe_mlp_dim is 4, which must be no "
                  "less"));
  EXPECT_THAT(mesh_conflicts(kDense, shape_of({{MeshAxis::kContext, 1 << 30}})),
              testing::Contains(HasSubstr("a multiple of 2147483648, twice the degree")));
}

// Against all meshes, judged one by one.
TEST(MeshRules, TheNearestMeshesWorkAndNoneIsNearer) {
  MeshDemands demands = kDense;
  demands.query_heads = 12;
  demands.kv_heads = 4;
  const MeshShape requested = shape_of({{MeshAxis::kTensor, 8}, {MeshAxis::kFsdp, 3}});
  const auto works = [&](const MeshShape& mesh) { return mesh_conflicts(demands, mesh).empty(); };
  const auto nearest = nearest_meshes(1, 24, requested, 3, works);
  ASSERT_THAT(nearest, SizeIs(3));
  const auto everything = nearest_meshes(1, 24, requested, 100'000, works);
  EXPECT_THAT(everything, SizeIs(testing::Gt(100U)));
  EXPECT_TRUE(std::equal(nearest.begin(), nearest.end(), everything.begin()));
  for (const MeshShape& mesh : everything) {
    EXPECT_THAT(mesh_conflicts(demands, mesh), IsEmpty());
    int32_t ranks = 1;
    for (const int32_t degree : mesh.ici) ranks *= degree;
    EXPECT_EQ(ranks, 24);
  }
  EXPECT_EQ(format_mesh_keys(nearest.front()),
            "ici_data_parallelism=2 ici_fsdp_parallelism=3 ici_tensor_parallelism=4");
}

TEST(MeshRules, NodesAndRanksAreDividedApart) {
  const MeshShape requested = shape_of({{MeshAxis::kTensor, 8}, {MeshAxis::kExpert, 4}});
  const auto nearest = nearest_meshes(4, 8, requested, 1, [](const MeshShape& mesh) {
    return mesh_conflicts(kDense, mesh).empty();
  });
  ASSERT_THAT(nearest, SizeIs(1));
  EXPECT_EQ(format_mesh_keys(nearest.front()), "ici_tensor_parallelism=8 dcn_data_parallelism=4");
  EXPECT_EQ(format_mesh_keys({}), "every degree 1");
}

TEST(MeshRules, TheSearchForANearMeshEnds) {
  MeshShape open = shape_of({{MeshAxis::kTensor, -1}, {MeshAxis::kFsdp, 0}});
  int tried = 0;
  EXPECT_THAT(nearest_meshes(4096, 1024, open, 1, [&](const MeshShape&) { return ++tried < 0; }),
              IsEmpty());
  EXPECT_EQ(tried, kNearMeshesTried);
}

}  // namespace
}  // namespace muster::trainer
