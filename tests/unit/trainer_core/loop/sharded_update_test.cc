// On any mesh over which the state is sharded, an update of all shards equals the update of one
// rank.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "common/random/philox.h"
#include "tests/unit/meshes.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/on_mesh.h"
#include "trainer_core/base/bf16.h"
#include "trainer_core/parallel/group_sums.h"

namespace muster::trainer {
namespace {

constexpr int kUpdates = 3;
// Each optimizer is tested on different meshes of eight ranks.
constexpr size_t kMeshStride = kSanitized ? 16 : 4;

// Matrices on both sides of Adafactor's threshold for factors.
ModelConfig large(ModelConfig model) {
  model.emb_dim = 128;
  model.head_dim = 16;
  model.vocab_size = 131;
  model.mlp_dim = 129;
  model.experts.mlp_dim = 130;
  model.experts.count = std::min(model.experts.count, 4);
  return model;
}

std::vector<OptimizerConfig> all_optimizers() {
  std::vector<OptimizerConfig> configs(6);
  configs[0].adamw_mask = {"norm", "bias"};
  configs[1].type = OptimizerType::kAdamPax;
  configs[2].type = OptimizerType::kAdamPax;
  configs[2].update_clip = 0.3;
  configs[3].type = OptimizerType::kSgd;
  configs[4].type = OptimizerType::kAdafactor;
  configs[5].mu_dtype = ComputeType::kBfloat16;
  return configs;
}

// Tensors of different magnitudes, so that a bound for one does not fit another.
float number(uint64_t what, const ParamSpec& spec, int64_t i) {
  const auto bits = Philox{what, static_cast<uint64_t>(spec.offset)}(static_cast<uint64_t>(i))[0];
  return (uniform_from_bits(bits) - 0.5F) * static_cast<float>(1 + spec.offset % 7);
}

// The model's parameters, followed by the gradients of each update.
std::vector<std::vector<float>> numbers_of(const std::vector<ParamSpec>& table) {
  std::vector<std::vector<float>> all(1 + kUpdates);
  for (uint64_t what = 0; what < all.size(); ++what) {
    for (const ParamSpec& spec : table) {
      for (int64_t i = 0; i < spec.elements(); ++i) all[what].push_back(number(what, spec, i));
    }
  }
  return all;
}

// The blocks of one rank.
struct Blocks {
  Blocks(const OptimizerConfig& config, const ShardLayout& of,
         const std::vector<std::vector<float>>& model)
      : layout(of),
        numbers(model),
        optimizer(Optimizer::make(config, of)),
        params(static_cast<size_t>(of.elements())),
        grads(params.size()),
        state(static_cast<size_t>(optimizer->state_elements())) {
    fill(0, params);
  }

  // Selects the rank's part of the model's tensors.
  void fill(size_t what, std::vector<float>& block) const {
    for (const ShardPiece& piece : layout.pieces()) {
      const ParamSpec& spec = layout.table()[piece.param];
      for (const TensorBox& box : layout.boxes(piece)) {
        const CommonRuns runs(whole_box(spec), box);
        for (int64_t run = 0; run < runs.count(); ++run) {
          const auto [from, to] = runs.at(run);
          std::copy_n(numbers[what].begin() + spec.offset + from, runs.length(),
                      block.begin() + box.offset + to);
        }
      }
    }
  }

  absl::Status update(SumExchange* exchange) {
    const auto ops = cpu_ops(1);
    for (int64_t t = 1; t <= kUpdates; ++t) {
      fill(static_cast<size_t>(t), grads);
      const UpdateStep step{.learning_rate = 0.01, .grad_scale = 0.5, .t = t};
      if (auto status = optimizer->update(*ops, step, {params, grads, state}, exchange);
          !status.ok())
        return status;
    }
    return absl::OkStatus();
  }

  const ShardLayout& layout;
  const std::vector<std::vector<float>>& numbers;
  std::unique_ptr<Optimizer> optimizer;
  std::vector<float> params, grads, state;
};

// Element i of a block of such values.
float number_at(const std::vector<float>& block, DType dtype, int64_t i) {
  if (dtype == DType::kBf16) return reinterpret_cast<const Bf16*>(block.data())[i].value();
  return block[static_cast<size_t>(i)];
}

struct WholeTensor {
  TensorRow row;
  std::vector<float> numbers;
  double largest = 0;
};
using WholeTensors = std::map<std::string, WholeTensor>;  // by name

WholeTensors tensors_of(const std::vector<TensorRow>& rows, const std::vector<float>& block) {
  WholeTensors tensors;
  for (const TensorRow& row : rows) {
    WholeTensor& tensor = tensors[row.name];
    tensor.row = row;
    for (int64_t i = 0; i < row.elements(); ++i) {
      tensor.numbers.push_back(number_at(block, row.dtype, row.offset + i));
      tensor.largest = std::max<double>(tensor.largest, std::abs(tensor.numbers.back()));
    }
  }
  return tensors;
}

// Compares the boxes of a block with the whole tensors, to 1e-6 of the tensor's magnitude.
void expect_same(const std::vector<TensorBox>& boxes, const std::vector<float>& block,
                 const WholeTensors& whole) {
  for (const TensorBox& box : boxes) {
    const auto& [row, expected, largest] = whole.at(box.tensor);
    const CommonRuns runs(whole_box(row), box);
    for (int64_t run = 0; run < runs.count(); ++run) {
      const auto [from, to] = runs.at(run);
      for (int64_t i = 0; i < runs.length(); ++i) {
        const double wanted = expected[from + i];
        const float got = number_at(block, box.dtype, box.offset + to + i);
        if (std::abs(got - wanted) <= 1e-6 * std::max(std::abs(wanted), 1e-2 * largest)) continue;
        FAIL() << box.tensor << " element " << from + i << ": " << got << ", not " << wanted;
      }
    }
  }
}

class ShardedUpdate : public testing::TestWithParam<std::string> {
 protected:
  static ModelConfig model() {
    const std::string& name = GetParam();
    return large(name == "llama" ? sharded_llama()
                 : name == "gpt" ? sharded_gpt()
                                 : sharded_glam());
  }
};

TEST_P(ShardedUpdate, EqualsOneRanksUpdate) {
  const ModelConfig config = model();
  const ShardLayout whole = ShardLayout::whole(model_params(config));
  const std::vector<TensorRow> rows(whole.table().begin(), whole.table().end());
  const auto numbers = numbers_of(whole.table());
  int meshes = 0;
  for (const OptimizerConfig& optimizer : all_optimizers()) {
    Blocks alone(optimizer, whole, numbers);
    ASSERT_TRUE(alone.update(nullptr).ok());
    const WholeTensors params = tensors_of(rows, alone.params);
    const WholeTensors state = tensors_of(alone.optimizer->state().tensors, alone.state);
    std::vector<Degrees> all = factorisations(8);
    for (size_t i = static_cast<size_t>(optimizer.type); i < all.size(); i += kMeshStride) {
      const Mesh mesh = mesh_with(all[i]);
      if (!allows(config, mesh)) continue;
      ++meshes;
      on_mesh(mesh, [&](ProcessGroups& groups) {
        const ShardLayout layout = ShardLayout::of(config, mesh, groups.rank(), DType::kF32);
        Blocks shard(optimizer, layout, numbers);
        GroupSums sums(groups);
        ASSERT_TRUE(shard.update(&sums).ok());
        expect_same(layout.stored_boxes(), shard.params, params);
        expect_same(shard.optimizer->state().held, shard.state, state);
      });
      ASSERT_FALSE(HasFailure()) << mesh.to_string() << ", "
                                 << kOptimizerNames[static_cast<size_t>(optimizer.type)];
    }
  }
  EXPECT_GT(meshes, 80 / static_cast<int>(kMeshStride));
}

// In a checkpoint of the state, each element is written once over the ranks of a data coordinate,
// and each written element is held.
TEST_P(ShardedUpdate, EachElementOfTheStateIsWrittenOnce) {
  const ModelConfig config = model();
  for (const OptimizerConfig& optimizer : all_optimizers()) {
    const auto alone = Optimizer::make(optimizer, ShardLayout::whole(model_params(config)));
    EXPECT_EQ(alone->state().written, boxes_of_rows(alone->state().tensors));
    for (const Degrees& degrees : {Degrees{1, 1, 8, 1, 1, 1, 1}, Degrees{2, 1, 2, 1, 1, 1, 2},
                                   Degrees{1, 2, 1, 1, 1, 1, 4}, Degrees{1, 4, 1, 2, 1, 1, 1},
                                   Degrees{1, 1, 1, 1, 3, 1, 4}, Degrees{1, 1, 2, 1, 1, 4, 1}}) {
      const Mesh mesh = mesh_with(degrees);
      if (!allows(config, mesh)) continue;
      using Range = std::pair<int64_t, int64_t>;
      std::map<std::string, std::vector<Range>> written;
      for (int32_t rank = 0; rank < mesh.ranks(); ++rank) {
        if (mesh.coordinate(rank)[0] != 0) continue;
        const auto shard =
            Optimizer::make(optimizer, ShardLayout::of(config, mesh, rank, DType::kF32));
        for (const TensorBox& box : shard->state().written) {
          const CommonRuns runs(whole_box({box.tensor, box.shape, 0, box.dtype}), box);
          for (int64_t run = 0; run < runs.count(); ++run) {
            const int64_t from = runs.at(run).from;
            written[box.tensor].emplace_back(from, from + runs.length());
          }
        }
      }
      for (const TensorRow& row : alone->state().tensors) {
        std::vector<Range>& ranges = written[row.name];
        std::ranges::sort(ranges);
        int64_t end = 0;
        for (const Range& range : ranges) {
          ASSERT_EQ(range.first, end) << row.name << " on " << mesh.to_string();
          end = range.second;
        }
        ASSERT_EQ(end, row.elements()) << row.name << " on " << mesh.to_string();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ShardedUpdate, testing::Values("llama", "gpt", "glam"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace muster::trainer
