#include "tests/unit/trainer_core/train_helpers.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/comm/local.h"
#include "trainer_core/loop/train.h"
#include "trainer_core/text/tokenize.h"
#include "trainer_core/text/train_tokenizer.h"

namespace muster::trainer {

TrainConfig tiny_config(int ranks) {
  TrainConfig config;
  config.run_name = "tiny";
  config.model = {.name = "tiny",
                  .vocab_size = 64,
                  .emb_dim = 32,
                  .num_layers = 2,
                  .num_query_heads = 4,
                  .num_kv_heads = 2,
                  .head_dim = 8,
                  .mlp_dim = 48};
  config.steps = 20;
  config.optimizer.learning_rate = 3e-3;
  config.optimizer.schedule_steps = 20;
  config.optimizer.warmup_steps = 2;
  config.log_period = 1;
  config.per_device_batch_size = 4 / ranks;
  config.max_target_length = 16;
  config.mesh.ici[0] = ranks;
  config.enable_checkpointing = false;
  config.threads = 1;
  return config;
}

TrainConfig along_fsdp(TrainConfig config) {
  std::swap(config.mesh.ici[static_cast<size_t>(MeshAxis::kData)],
            config.mesh.ici[static_cast<size_t>(MeshAxis::kFsdp)]);
  return config;
}

TrainConfig along_tensor(TrainConfig config) {
  const int32_t ranks = config.mesh.ici[static_cast<size_t>(MeshAxis::kData)];
  std::swap(config.mesh.ici[static_cast<size_t>(MeshAxis::kData)],
            config.mesh.ici[static_cast<size_t>(MeshAxis::kTensor)]);
  config.per_device_batch_size *= ranks;
  config.eval.per_device_batch_size *= ranks;
  return config;
}

std::vector<double> RunResult::losses() const {
  std::vector<double> losses;
  for (const StepRecord& record : records[0]) losses.push_back(record.loss);
  return losses;
}

namespace {

// Returns the mesh of the config, or data parallelism over `ranks` ranks if it has another size.
Mesh mesh_of_ranks(const TrainConfig& config, int32_t ranks) {
  const Mesh mesh = mesh_of(config.mesh);
  return mesh.ranks() == ranks ? mesh : mesh_of({.ici = {ranks, 1, 1, 1, 1, 1, 1}});
}

}  // namespace

RunResult run_ranks(const std::vector<TrainConfig>& configs, const StepHook& hook) {
  return run_ranks_with_signals(configs,
                                [&](int rank, const StepRecord& record, StopSignals& signals) {
                                  if (hook) hook(rank, record, signals.stop);
                                });
}

RunResult run_ranks_with_signals(const std::vector<TrainConfig>& configs, const SignalsHook& hook,
                                 const std::function<LocalStorage(int rank)>& place,
                                 uint64_t known_checkpoint_step) {
  const int size = static_cast<int>(configs.size());
  LocalWorld world(size, std::chrono::milliseconds(60'000));
  RunResult result;
  result.codes.resize(configs.size());
  result.records.resize(configs.size());
  result.evaluations.resize(configs.size());
  result.checkpoint_steps.resize(configs.size());
  std::vector<std::ostringstream> outs(configs.size());
  std::vector<std::ostringstream> errs(configs.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank, r = static_cast<size_t>(rank)] {
      auto page = ProgressWriter::anonymous({.rank = rank, .world_size = size});
      const std::shared_ptr<Backend> device = device_of_tests();
      TrainConfig config = configs[r];
      if (device != nullptr) config.hardware = Hardware::kGpu;
      ProcessGroups groups(world.join(rank), mesh_of_ranks(config, size), page.get(),
                           device != nullptr ? device->memory() : host_memory());
      if (const NcclOptions nccl = nccl_of_tests(); nccl.api != nullptr) groups.use_nccl(nccl);
      StopSignals signals;
      const auto on_step = [&](const StepRecord& record) {
        result.records[r].push_back(record);
        EXPECT_EQ(page->page().step, record.step + 1);
        hook(rank, record, signals);
      };
      result.codes[r] = train(config, {.groups = groups,
                                       .page = *page,
                                       .out = outs[r],
                                       .err = errs[r],
                                       .signals = signals,
                                       .threads = 1,
                                       .on_step = on_step,
                                       .on_evaluation =
                                           [&](const EvalRecord& record) {
                                             result.evaluations[r].push_back(record);
                                             if (!record.has_loss) return;
                                             EXPECT_EQ(page->page().eval_step, record.step + 1);
                                             EXPECT_EQ(page->page().eval_loss, record.loss);
                                           },
                                       .local = place ? place(rank) : LocalStorage{},
                                       .known_checkpoint_step = known_checkpoint_step,
                                       .backend = device});
      result.checkpoint_steps[r] = page->page().checkpoint_step;
    });
  }
  for (std::thread& thread : threads) thread.join();
  result.out = outs[0].str();
  for (size_t r = 1; r < configs.size(); ++r) EXPECT_EQ(outs[r].str(), "");
  for (const std::ostringstream& err : errs) result.err += err.str();
  return result;
}

RunResult run(const TrainConfig& config, const StepHook& hook) {
  const auto ranks = static_cast<size_t>(mesh_of(config.mesh).ranks());
  return run_ranks(std::vector<TrainConfig>(ranks, config), hook);
}

std::string checkpoint_bytes(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors")
      files[entry.path().filename()] = read_file(entry.path());
  }
  std::string bytes;
  for (const auto& [name, content] : files) bytes += name + content;
  EXPECT_FALSE(bytes.empty()) << folder;
  return bytes;
}

void make_text_dataset(const std::string& folder) {
  std::ofstream text(folder + "/text.txt");
  const std::vector<std::string> kings = {"David", "Saul", "Solomon", "Ahab", "Josiah"};
  const std::vector<std::string> deeds = {
      "went up unto the house of the LORD", "smote the city with the edge of the sword",
      "did that which was right in the sight of the people", "reigned in Jerusalem"};
  for (size_t i = 0; i < 2000; ++i) {
    const std::string number = std::to_string(i * i % 41);
    text << "And it came to pass in the year " << number << ", that " << kings[i * 7 % 5]
         << " the king " << deeds[i * i % 4] << ".\n";
  }
  text.close();
  const auto trained = train_tokenizer(
      {.input = folder + "/text.txt", .vocab_size = kTextVocab, .output = folder + "/t.model"});
  ASSERT_TRUE(trained.ok()) << trained.status();
  TokenizeOptions options;
  options.inputs = {folder + "/text.txt"};
  options.tokenizer_path = folder + "/t.model";
  options.output_directory = folder + "/data";
  const auto report = tokenize_files(options);
  ASSERT_TRUE(report.ok()) << report.status();
}

}  // namespace muster::trainer
