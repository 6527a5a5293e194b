#include "trainer_core/base/saved_plan.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/version.h"
#include "tests/unit/mutate.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/temp_folder.h"
#include "trainer_core/base/saved_plan_check.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::trainer {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

TrainConfig tiny() {
  TrainConfig config;
  config.run_name = "planned";
  config.model = {.name = "llama2-tiny",
                  .vocab_size = 512,
                  .emb_dim = 64,
                  .num_layers = 2,
                  .num_query_heads = 4,
                  .num_kv_heads = 2,
                  .head_dim = 16,
                  .mlp_dim = 172};
  config.optimizer.schedule_steps = 100;
  config.hardware = Hardware::kGpu;
  config.dtype = ComputeType::kBfloat16;
  config.mesh.ici[static_cast<size_t>(MeshAxis::kFsdp)] = 4;
  config.steps = 100;
  config.per_device_batch_size = 2;
  config.max_target_length = 128;
  config.checkpoint_directory = "/out/checkpoints";
  return config;
}

MemoryPlan layout(size_t activations = 4096) {
  MemoryPlan memory;
  memory.add("parameters", MemoryCategory::kParameters, 1000);
  memory.add("activations", MemoryCategory::kActivations, activations);
  memory.begin_host();
  memory.begin_reserved_host();
  memory.add("checkpoint staging", MemoryCategory::kCheckpoint, 2000);
  return memory;
}

Json plan_json() {
  return {{"machines",
           {{"topology", "h100"},
            {"device", "NVIDIA H100 80GB HBM3"},
            {"has_backend", true},
            {"memory_bytes", int64_t{80} << 30},
            {"nodes", 1},
            {"devices_per_node", 4}}},
          {"config", to_json(tiny())},
          {"threads", 0},
          {"schedule", {"f0.0 b0.0 x1"}},
          {"layouts", {layout_to_json(layout(), 0, false), layout_to_json(layout(8192), 0, true)}},
          {"libraries", {{"oneDNN", "2.6.0"}}},
          {"device_bytes", 5000},
          {"step_seconds", 0.5},
          {"communication_seconds", 0.1},
          {"read_seconds", 0},
          {"checkpoint_seconds", 0.01},
          {"algorithms", {"cublasLt 130100|NVIDIA H100|64x64\t00"}},
          {"memory", Json::object()},
          {"step", Json()}};
}

std::string error_of(const Json& plan) {
  return std::string(
      parse_saved_plan(Json::parse(saved_plan_text(plan)), "/plan").status().message());
}

class SavedPlanFile : public testing::Test {
 protected:
  std::string error_of_file(const std::string& text) {
    write_file(path(), text);
    return std::string(read_saved_plan(path()).status().message());
  }
  std::string path() const { return folder_.file("plan"); }

  TempFolder folder_;
};

TEST_F(SavedPlanFile, SurvivesTheFile) {
  write_file(path(), saved_plan_text(plan_json()));
  const auto plan = read_saved_plan(path());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->config, tiny());
  EXPECT_EQ(plan->device, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(plan->libraries.at("oneDNN"), "2.6.0");
  EXPECT_EQ(plan->step_seconds, 0.5);
  EXPECT_EQ(plan->algorithms.size(), 1u);
  ASSERT_EQ(plan->layouts.size(), 2u);
  EXPECT_EQ(plan->layouts[1].buffers[1].bytes, 8192u);
  EXPECT_TRUE(check_planned_config(*plan, tiny()).ok());
}

TEST_F(SavedPlanFile, OtherFilesAreRefusedInASentence) {
  const std::string good = saved_plan_text(plan_json());
  EXPECT_THAT(error_of_file(""), HasSubstr("is not a saved plan of Muster, or is only a part"));
  EXPECT_THAT(error_of_file(good.substr(0, good.size() / 2)), HasSubstr("only a part of one"));
  EXPECT_THAT(error_of_file("\x80\x04pickle"), HasSubstr("is not a saved plan"));
  EXPECT_THAT(error_of_file("[1, 2]"), HasSubstr("is not a saved plan of Muster"));
  EXPECT_THAT(error_of_file(R"({"format": "muster-plan", "version": 2, "plan": 3})"),
              HasSubstr("is not a saved plan of Muster"));
  EXPECT_THAT(error_of_file(std::string(100'000, '[')), HasSubstr("is not a saved plan"));
  std::filesystem::remove(path());
  EXPECT_THAT(
      read_saved_plan(path()).status().message(),
      AllOf(HasSubstr("compiled_trainstep_file: "), HasSubstr(path()), HasSubstr("make it again")));
  std::filesystem::create_directory(path());
  EXPECT_THAT(read_saved_plan(path()).status().message(), HasSubstr("not a regular file"));
  std::filesystem::remove(path());
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);  // opening it must not block
  EXPECT_THAT(read_saved_plan(path()).status().message(), HasSubstr("not a regular file"));
  std::filesystem::remove(path());
  write_file(path(), "");
  std::filesystem::resize_file(path(), kSavedPlanBytesMax + 1);  // sparse
  EXPECT_THAT(read_saved_plan(path()).status().message(), HasSubstr("may have at most"));
}

TEST_F(SavedPlanFile, AnotherVersionOrAnEditIsRefused) {
  Json file = Json::parse(saved_plan_text(plan_json()));
  Json changed = file;
  changed["version"] = 1;  // steps had other parts
  changed["plan"]["data_seconds"] = 0;
  changed["plan"].erase("read_seconds");
  EXPECT_THAT(error_of_file(changed.dump()),
              AllOf(HasSubstr("has version 1 of the format, and this Muster reads version 2"),
                    HasSubstr("make it again: muster plan")));
  changed = file;
  changed["plan"]["config"]["steps"] = 200;
  EXPECT_THAT(error_of_file(changed.dump()), HasSubstr("its checksum differs"));
  changed = file;
  changed["checksum"] = std::string(32, '0');
  EXPECT_THAT(error_of_file(changed.dump()), HasSubstr("its checksum differs"));
  // The checksum is over the values: an editor may format the file.
  EXPECT_EQ(error_of_file(file.dump(2)), "");
  changed = file;
  std::string text = file.dump();
  const std::string version = std::string("\"muster\":\"") + kVersion;
  text.replace(text.find(version), version.size(), "\"muster\":\"0.0.1");
  EXPECT_THAT(error_of_file(text), HasSubstr("its checksum differs"));
}

// Values that a person with the format's description can sign.
TEST(SavedPlan, SignedValuesAreCheckedToo) {
  const auto with = [](const char* pointer, Json value) {
    Json plan = plan_json();
    plan[Json::json_pointer(pointer)] = std::move(value);
    return error_of(plan);
  };
  EXPECT_EQ(error_of(plan_json()), "");
  EXPECT_THAT(with("/machines/nodes", 0), HasSubstr("machines has nodes=0, which must be"));
  EXPECT_THAT(with("/machines/nodes", 1e300), HasSubstr("machines has nodes=1e+300"));
  EXPECT_THAT(with("/machines/device", std::string(1000, 'x')), HasSubstr("device="));
  EXPECT_THAT(with("/machines", 7), HasSubstr("machines is not an object"));
  EXPECT_THAT(with("/threads", -1), HasSubstr("threads=-1"));
  EXPECT_THAT(with("/device_bytes", UINT64_MAX), HasSubstr("device_bytes="));
  EXPECT_THAT(with("/step_seconds", -0.5), HasSubstr("step_seconds=-0.5"));
  EXPECT_THAT(with("/step_seconds", "1"), HasSubstr("step_seconds="));
  EXPECT_THAT(with("/layouts", 1), HasSubstr("layouts is not a list"));
  EXPECT_THAT(with("/layouts/0/stage", -1), HasSubstr("a layout has stage=-1"));
  EXPECT_THAT(with("/layouts/0/buffers/0/2", UINT64_MAX), HasSubstr("no valid buffer 0"));
  EXPECT_THAT(with("/layouts/0/buffers/1/3", INT64_MAX), HasSubstr("no valid buffer 1"));
  EXPECT_THAT(with("/layouts/0/buffers/1", Json::array({1, 2})), HasSubstr("no valid buffer 1"));
  EXPECT_THAT(with("/layouts/0/buffers/1/1", "magic"), HasSubstr("no valid buffer 1"));
  EXPECT_THAT(with("/algorithms", {{1}}), HasSubstr("algorithms="));
  EXPECT_THAT(with("/schedule", "f0.0"), HasSubstr("schedule="));
  EXPECT_THAT(with("/libraries", Json::array()), HasSubstr("libraries is not an object"));
  EXPECT_THAT(with("/config/steps", 0), HasSubstr("steps"));
  EXPECT_THAT(with("/config/base_emb_dim", "wide"), HasSubstr("base_emb_dim"));
  for (const char* key : {"config", "threads", "layouts", "machines", "step_seconds"}) {
    Json plan = plan_json();
    plan.erase(key);
    EXPECT_THAT(error_of(plan), HasSubstr(std::string("the plan has no ") + key));
  }
}

TEST_F(SavedPlanFile, DamageIsFoundAndNeverCrashes) {
  Mutator damage(31);
  const std::string good = saved_plan_text(plan_json());
  const auto original = parse_saved_plan(Json::parse(good), path());
  ASSERT_TRUE(original.ok()) << original.status();
  for (int i = 0; i < 2000; ++i) {
    const std::string bytes = damage.mutate(good);
    const Json file = Json::parse(bytes, nullptr, /*allow_exceptions=*/false);
    const auto plan = parse_saved_plan(file, path());
    // A change between the values, such as a blank, is none.
    if (plan.ok()) {
      EXPECT_EQ(plan->config, original->config);
      EXPECT_EQ(plan->device_bytes, original->device_bytes);
    }
  }
  int accepted = 0, refused = 0;
  for (int i = 0; i < 2000; ++i) {  // signed damage
    const Json plan = Json::parse(damage.mutate(plan_json().dump()), nullptr, false);
    if (!plan.is_object()) continue;
    const auto read = parse_saved_plan(Json::parse(saved_plan_text(plan)), path());
    ++(read.ok() ? accepted : refused);
    if (read.ok()) {
      EXPECT_TRUE(validate(read->config).ok()) << validate(read->config);
      EXPECT_GE(read->nodes, 1);
      EXPECT_GE(read->step_seconds, 0);
      EXPECT_LE(read->step_seconds, 86'400);
    } else {
      EXPECT_TRUE(absl::IsInvalidArgument(read.status())) << read.status();
      EXPECT_THAT(read.status().message(), HasSubstr(path()));
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
}

TEST_F(SavedPlanFile, EveryTruncationAndEveryChangedByteIsRefused) {
  const std::string good = saved_plan_text(plan_json());
  const auto parse = [&](const std::string& text) {
    return parse_saved_plan(Json::parse(text, nullptr, /*allow_exceptions=*/false), path());
  };
  const auto is_blank = [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; };
  const size_t end = good.find_last_not_of('\n') + 1;
  // A sanitizer makes each parse many times as slow.
  constexpr size_t kStep = kSanitized ? 7 : 1;
  for (size_t size = 0; size < end; size += kStep) {
    const absl::Status status = parse(good.substr(0, size)).status();
    ASSERT_TRUE(absl::IsInvalidArgument(status)) << size;
    ASSERT_THAT(status.message(), HasSubstr(path()));
  }
  for (size_t at = 0; at < end; at += kStep) {
    for (const char c : {'\0', '0', '}', '"', ' ', static_cast<char>(good[at] ^ 1)}) {
      if (c == good[at] || (is_blank(c) && is_blank(good[at]))) continue;
      std::string text = good;
      text[at] = c;
      const absl::Status status = parse(text).status();
      ASSERT_TRUE(absl::IsInvalidArgument(status)) << at << ": " << good[at] << " to " << c;
    }
  }
}

TEST_F(SavedPlanFile, OnlyPlansAreReplaced) {
  EXPECT_TRUE(check_replaceable(path()).ok());
  write_file(path(), "");
  EXPECT_TRUE(check_replaceable(path()).ok());
  write_file(path(), saved_plan_text(plan_json()));
  EXPECT_TRUE(check_replaceable(path()).ok());
  write_file(path(), "{\"text\": \"my corpus\"}");
  EXPECT_THAT(check_replaceable(path()).message(), HasSubstr("is not a saved plan"));
  EXPECT_THAT(check_replaceable(folder_.path()).message(), HasSubstr("not a regular file"));
}

struct Difference {
  const char* what;
  std::vector<std::string> words;  // in the sentence
  void (*change)(TrainConfig&);
};

TEST(SavedPlan, TheFirstDifferenceIsNamedWithBothValues) {
  const auto plan = parse_saved_plan(Json::parse(saved_plan_text(plan_json())), "/plan");
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Difference differences[] = {
      {"ranks",
       {"for 1 node of 4 ranks, and the job has 1 node of 8 ranks"},
       [](TrainConfig& c) { c.mesh.ici[static_cast<size_t>(MeshAxis::kData)] = 2; }},
      {"nodes",
       {"for 1 node of 4 ranks, and the job has 2 nodes of 4 ranks"},
       [](TrainConfig& c) { c.mesh.dcn[static_cast<size_t>(MeshAxis::kData)] = 2; }},
      {"mesh",
       {"ici_data_parallelism=1, and the job has 4"},
       [](TrainConfig& c) {
         c.mesh.ici[static_cast<size_t>(MeshAxis::kData)] = 4;
         c.mesh.ici[static_cast<size_t>(MeshAxis::kFsdp)] = 1;
       }},
      {"width",
       {"base_emb_dim=64, and the job has 128"},
       [](TrainConfig& c) { c.model.emb_dim = 128; }},
      {"length",
       {"max_target_length=128, and the job has 256"},
       [](TrainConfig& c) { c.max_target_length = 256; }},
      {"batch, as users write it",
       {"per_device_batch_size=2, and the job has 4"},
       [](TrainConfig& c) { c.per_device_batch_size = 4; }},
      {"precision",
       {"dtype=bfloat16, and the job has float32"},
       [](TrainConfig& c) { c.dtype = ComputeType::kFloat32; }},
      {"stored precision",
       {"weight_dtype=its default, and the job has bfloat16"},
       [](TrainConfig& c) { c.weight_dtype = ComputeType::kBfloat16; }},
      {"hardware",
       {"hardware=gpu, and the job has cpu"},
       [](TrainConfig& c) { c.hardware = Hardware::kCpu; }},
      {"remat",
       {"remat_policy=full, and the job has none"},
       [](TrainConfig& c) { c.remat_policy = RematPolicy::kNone; }},
      {"steps, not the schedule that follows from them",
       {"steps=100, and the job has 200"},
       [](TrainConfig& c) { c.steps = c.optimizer.schedule_steps = 200; }},
      {"learning rate",
       {"learning_rate=3e-05, and the job has 0.001"},
       [](TrainConfig& c) { c.optimizer.learning_rate = 1e-3; }},
      {"the shape before the schedule",
       {"max_target_length=128"},
       [](TrainConfig& c) {
         c.steps = 200;
         c.max_target_length = 256;
       }},
  };
  for (const Difference& one : differences) {
    TrainConfig config = tiny();
    one.change(config);
    const absl::Status status = check_planned_config(*plan, config);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << one.what;
    for (const std::string& word : one.words)
      EXPECT_THAT(status.message(),
                  AllOf(HasSubstr("compiled_trainstep_file=/plan: "), HasSubstr(word)))
          << one.what;
  }
}

TEST(SavedPlan, DataSeedsOutputsAndConstantsAreNoPartOfIt) {
  const auto plan = parse_saved_plan(Json::parse(saved_plan_text(plan_json())), "/plan");
  ASSERT_TRUE(plan.ok()) << plan.status();
  TrainConfig config = tiny();
  config.run_name = "another";
  config.hardware = Hardware::kAuto;
  config.dataset_type = DatasetType::kShards;
  config.dataset_path = "/data";
  config.optimizer.b1 = 0.8;
  config.optimizer.weight_decay = 0;
  config.init_weights_seed = 7;
  config.enable_checkpointing = false;
  config.compiled_trainstep_file = "/plan";
  EXPECT_TRUE(check_planned_config(*plan, config).ok()) << check_planned_config(*plan, config);
}

TEST(SavedPlan, DevicesAndThreadsAreCompared) {
  Json json = plan_json();
  json["threads"] = 2;
  auto plan = parse_saved_plan(Json::parse(saved_plan_text(json)), "/plan");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(check_planned_device(*plan, "NVIDIA H100 80GB HBM3").ok());
  EXPECT_THAT(check_planned_device(*plan, "NVIDIA H200").message(),
              HasSubstr("for NVIDIA H100 80GB HBM3 (h100), and this device is NVIDIA H200"));
  EXPECT_TRUE(check_planned_threads(*plan, 2).ok());
  EXPECT_THAT(check_planned_threads(*plan, 4).message(),
              HasSubstr("for 2 threads per rank, and this rank has 4"));
  plan->has_backend = false;
  EXPECT_THAT(check_planned_device(*plan, "TPU v5e").message(), HasSubstr("has no backend"));
}

TEST(SavedPlan, ARanksLayoutIsCompared) {
  const auto plan = parse_saved_plan(Json::parse(saved_plan_text(plan_json())), "/plan");
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto check = [&](const MemoryPlan& memory, OwnPlan own) {
    return check_own_plan(*plan, {.memory = memory,
                                  .stage = own.stage,
                                  .packed = own.packed,
                                  .is_largest = own.is_largest,
                                  .schedule = "f0.0 b0.0 x1"});
  };
  const MemoryPlan same = layout(), larger = layout(8192), smaller = layout(64);
  MemoryPlan unsaved;  // a rank without background saves
  unsaved.add("parameters", MemoryCategory::kParameters, 1000);
  unsaved.add("activations", MemoryCategory::kActivations, 4096);
  EXPECT_TRUE(check(same, {.memory = same}).ok());
  EXPECT_TRUE(check(unsaved, {.memory = unsaved}).ok());
  EXPECT_TRUE(check(larger, {.memory = larger, .packed = true}).ok());
  EXPECT_TRUE(check(smaller, {.memory = smaller, .is_largest = false}).ok());
  EXPECT_THAT(check(smaller, {.memory = smaller}).message(),
              HasSubstr("has 4096 bytes at offset 1024 for activations, and this rank needs 64"));
  EXPECT_THAT(check(larger, {.memory = larger, .is_largest = false}).message(),
              HasSubstr("another build of muster-trainer"));
  EXPECT_THAT(check(same, {.memory = same, .stage = 1}).message(), HasSubstr("stage 1"));
  EXPECT_THAT(check_own_plan(*plan, {.memory = same, .schedule = "f0.0 b0.0 x2"}).message(),
              HasSubstr("another order of passes"));
}

}  // namespace
}  // namespace muster::trainer
