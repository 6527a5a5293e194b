// load_parameters_path on several ranks: all read one checkpoint, whatever happens to the folder.
#include "trainer_core/startup/initial_parameters.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/hooked_transport.h"
#include "tests/unit/trainer_core/hugging_face_goldens.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/comm/local.h"

namespace muster::trainer {
namespace {

using testing::Each;
using testing::HasSubstr;
namespace fs = std::filesystem;

class LoadParameters : public testing::Test {
 protected:
  static constexpr int kRanks = 2;

  void SetUp() override {
    TrainConfig config = tiny_config(1);
    config.steps = 2;
    config.enable_checkpointing = true;
    config.checkpoint_period = 1;
    config.checkpoint_directory = folder_.file("steps");
    ASSERT_THAT(run(config).codes, Each(ExitCode::kOk));
    fs::create_directories(folder_.file("from"));
    publish("1");
  }

  void publish(const std::string& step) {
    fs::copy(folder_.file("steps/" + step), folder_.file("from/" + step),
             fs::copy_options::recursive);
  }

  struct Loaded {
    std::vector<absl::Status> statuses;
    std::vector<float> whole;  // both ranks' shards in the model's order
    std::string out;
  };
  // Calls `in_between` when rank 0 has chosen what to read, and rank 1 has not opened it yet.
  Loaded load(const std::function<void()>& in_between,
              PositionType position_type = PositionType::kRope) {
    TrainConfig config = along_fsdp(tiny_config(kRanks));
    config.model.position_type = position_type;
    config.load_parameters_path = folder_.file("from");
    return load(config, in_between);
  }
  static Loaded load(const TrainConfig& config, const std::function<void()>& in_between) {
    const Mesh mesh = mesh_of(config.mesh);
    const LocalWorld world(kRanks, std::chrono::milliseconds(60'000));
    Loaded loaded;
    loaded.statuses.resize(kRanks);
    loaded.whole.resize(static_cast<size_t>(parameter_count(model_params(config.model))));
    std::ostringstream out;
    bool first = true;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const RoundHooks hooks{.before = [&, rank](std::string_view) {
          if (rank == 0 && std::exchange(first, false)) in_between();
          return absl::OkStatus();
        }};
        ProcessGroups groups(std::make_shared<HookedTransport>(world.join(rank), hooks), mesh,
                             nullptr);
        const auto layout = ShardLayout::of(config.model, mesh, rank, DType::kF32);
        std::vector<float> params(static_cast<size_t>(layout.elements()));
        loaded.statuses[static_cast<size_t>(rank)] =
            load_parameters(config, layout, params, groups, out).status();
        for (const TensorBox& box : layout.stored_boxes()) {
          const auto spec = std::ranges::find(layout.table(), box.tensor, &ParamSpec::name);
          const CommonRuns runs(whole_box(*spec), box);
          for (int64_t i = 0; i < runs.count(); ++i) {
            const auto [from, to] = runs.at(i);
            std::copy_n(params.data() + box.offset + to, runs.length(),
                        loaded.whole.data() + spec->offset + from);
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    loaded.out = out.str();
    return loaded;
  }

  std::vector<float> parameters_of(const std::string& step) const {
    const std::vector<ParamSpec> table = model_params(tiny_config(1).model);
    std::vector<float> params(static_cast<size_t>(parameter_count(table)));
    std::vector<TensorRow> rows(table.begin(), table.end());
    EXPECT_TRUE(restore_parameters(folder_.file("steps/" + step), rows, params).ok());
    return params;
  }

  TempFolder folder_;
};

TEST_F(LoadParameters, ACheckpointSavedMeanwhileIsIgnored) {
  const Loaded loaded = load([&] { publish("2"); });
  for (const absl::Status& status : loaded.statuses) EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(loaded.whole, parameters_of("1"));
  EXPECT_THAT(loaded.out, HasSubstr("parameters are from " + folder_.file("from/1")));
}

// Damage in one rank's part is reported by all ranks.
TEST_F(LoadParameters, DamageFoundByOneRankIsReportedByAll) {
  const std::string file = folder_.file("from/1/model-00000-00000.safetensors");
  std::string bytes = read_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(file, bytes);
  const Loaded loaded = load([] {});
  for (const absl::Status& status : loaded.statuses) {
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("model-00000-00000.safetensors is damaged"));
  }
}

TEST_F(LoadParameters, AMissingFolderIsReportedByAll) {
  fs::remove_all(folder_.file("from/1"));
  for (const absl::Status& status : load([] {}).statuses) {
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("load_parameters_path="));
  }
}

// A run with RoPE's other layout reads each pair's rows from where the stored model has them: rows
// i and i + h/2 of a head become rows 2i and 2i + 1.
TEST_F(LoadParameters, RopesOtherLayoutIsReordered) {
  ASSERT_EQ(tiny_config(1).model.position_type, PositionType::kRope);
  const Loaded loaded = load([] {}, PositionType::kRopeInterleaved);
  for (const absl::Status& status : loaded.statuses) ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(loaded.out, HasSubstr("rows of queries and keys are reordered"));
  std::vector<float> expected = parameters_of("1");
  const std::vector<float> stored = expected;
  const ModelConfig model = tiny_config(1).model;
  const int64_t h = model.head_dim, d = model.emb_dim;
  int reordered = 0;
  for (const ParamSpec& spec : model_params(model)) {
    if (!spec.name.ends_with("q_proj.weight") && !spec.name.ends_with("k_proj.weight")) continue;
    for (int64_t row = 0; row < spec.shape[0]; ++row) {
      const int64_t head = row / h, in_head = row % h;
      const int64_t from = head * h + in_head / 2 + (in_head % 2) * (h / 2);
      std::copy_n(stored.data() + spec.offset + from * d, d,
                  expected.data() + spec.offset + row * d);
    }
    ++reordered;
  }
  EXPECT_EQ(reordered, 2 * model.num_layers);
  EXPECT_NE(expected, stored);
  EXPECT_EQ(loaded.whole, expected);
}

// Drawn or read, a block of bf16 has the values of one of fp32, each rounded.
TEST_F(LoadParameters, ABlockOfBf16HasTheRoundedValues) {
  for (const bool reads : {false, true}) {
    for (const PositionType position_type : {PositionType::kRope, PositionType::kRopeInterleaved}) {
      TrainConfig config = tiny_config(1);
      config.model.position_type = position_type;
      config.load_parameters_path = folder_.file("from");
      const Mesh mesh = mesh_of(config.mesh);
      const LocalWorld world(1, std::chrono::milliseconds(60'000));
      ProcessGroups groups(world.join(0), mesh, nullptr);
      const auto ops = cpu_ops(1);
      // Boxes of the same tensor are in the same order.
      const auto values = [&](DType stored) {
        const auto layout =
            ShardLayout::of(config.model, mesh, 0, DType::kBf16, /*pipeline_chunks=*/1, stored);
        std::vector<float> block(static_cast<size_t>(layout.stored_floats()));
        const Tensor params = Tensor::of(stored, block.data(), {layout.elements()});
        std::ostringstream out;
        if (reads) {
          EXPECT_TRUE(load_parameters(config, layout, block, groups, out).ok());
        } else {
          draw_parameters(*ops, config, layout, params);
        }
        std::map<std::string, std::vector<float>> by_tensor;
        for (const TensorBox& box : layout.stored_boxes()) {
          for (int64_t i = box.offset; i < box.offset + box.elements(); ++i) {
            by_tensor[box.tensor].push_back(stored == DType::kBf16
                                                ? static_cast<const Bf16*>(params.data)[i].value()
                                                : Bf16::round(params.f32()[i]).value());
          }
        }
        return by_tensor;
      };
      const auto expected = values(DType::kF32);
      EXPECT_EQ(expected.size(), model_params(config.model).size());
      EXPECT_EQ(values(DType::kBf16), expected) << "read: " << reads;
    }
  }
}

// All ranks have the adapters, not rank 0 alone.
TEST_F(LoadParameters, AFolderOfPeftIsMergedOnAllRanks) {
  const std::string adapter = folder_.file("adapter");
  fs::copy(source_dir() + "/tests/golden/lora/llama_gqa", adapter);
  auto peft = nlohmann::json::parse(read_file(adapter + "/adapter_config.json"));
  peft["base_model_name_or_path"] = hugging_face_golden("llama_gqa");
  write_file(adapter + "/adapter_config.json", peft.dump());
  const auto values_at = [](const std::string& path) {
    const auto source = ParameterSource::open(path);
    EXPECT_TRUE(source.ok()) << source.status();
    std::vector<float> values(static_cast<size_t>((*source)->parameters()));
    EXPECT_TRUE(load_parameters(**source, values).ok());
    return values;
  };
  const std::vector<float> merged = values_at(adapter);
  ASSERT_NE(merged, values_at(hugging_face_golden("llama_gqa")));
  TrainConfig config = along_fsdp(tiny_config(kRanks));
  config.model = (*ParameterSource::open(adapter))->description().model;
  config.load_parameters_path = adapter;
  const Loaded loaded = load(config, [] {});
  for (const absl::Status& status : loaded.statuses) ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(loaded.whole, merged);
  EXPECT_THAT(loaded.out, HasSubstr("parameters are from " + adapter));
}

TEST_F(LoadParameters, AModelWithoutRopeIsRefused) {
  for (const absl::Status& status : load([] {}, PositionType::kRelative).statuses)
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

}  // namespace
}  // namespace muster::trainer
