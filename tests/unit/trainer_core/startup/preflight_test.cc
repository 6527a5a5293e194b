#include "trainer_core/startup/preflight.h"

#include <gmock/gmock.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/setting_words.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/rank/training_plan.h"
#include "trainer_core/startup/node_memory.h"
#include "trainer_core/text/train_tokenizer.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

class Preflight : public testing::Test {
 protected:
  void SetUp() override {
    make_text_dataset(folder_.path());
    config_ = tiny_config(1);
    config_.model.vocab_size = kTextVocab;
    config_.dataset_type = DatasetType::kShards;
    config_.dataset_path = folder_.file("data");
    config_.tokenizer_path = folder_.file("t.model");
    config_.enable_checkpointing = true;
    config_.checkpoint_directory = folder_.file("ckpt");
    config_.metrics_file = folder_.file("metrics.jsonl");
  }

  std::string problem() const { return std::string(preflight(config_, machine_).message()); }

  TempFolder folder_;
  TrainConfig config_;
  std::optional<MachineRoots> machine_;
};

TEST_F(Preflight, AGoodConfigPasses) { EXPECT_EQ(problem(), ""); }

TEST_F(Preflight, ATrainingThatDoesNotFitInMemoryIsBadInput) {
  machine_ = MachineRoots{.proc = folder_.path(), .cgroup = folder_.file("no-groups")};
  config_.mesh.ici[0] = 4;
  write_file(folder_.file("meminfo"), "MemAvailable: 1024 kB\n");
  EXPECT_THAT(problem(),
              MatchesRegex(
                  "the training needs [0-9]+ MiB of memory \\(4 ranks of [0-9]+ "
                  "MiB, and [0-9]+ MiB for a checkpoint in the background\\), but this machine has "
                  "1 MiB available; nothing was found that fits: .*; use fewer ranks per node"));
  write_file(folder_.file("meminfo"), "MemAvailable: 204800 kB\n");
  EXPECT_THAT(problem(), HasSubstr("the training needs")) << "libraries take their part";
  EXPECT_TRUE(preflight(config_, machine_, PlanCheck::kOmit).ok());
  write_file(folder_.file("meminfo"), "MemAvailable: 2048000 kB\n");
  EXPECT_EQ(problem(), "");
}

TEST_F(Preflight, ValuesThatFitInMemoryAreOnALineEach) {
  machine_ = MachineRoots{.proc = folder_.path(), .cgroup = folder_.file("no-groups")};
  config_.remat_policy = RematPolicy::kNone;
  config_.per_device_batch_size = 16'384;
  write_file(folder_.file("meminfo"), "MemAvailable: 4096000 kB\n");
  ASSERT_EQ(problem(), "");
  const std::string half = "MemAvailable: " + std::to_string(300'000) + " kB\n";
  write_file(folder_.file("meminfo"), half);
  const std::string text = problem();
  EXPECT_THAT(text, ContainsRegex("300 MiB|292 MiB|293 MiB"));
  EXPECT_THAT(text, ContainsRegex("available\nwhat would fit(, each by itself)?:\n"
                                  "  per_device_batch_size=[0-9]+ "
                                  "gradient_accumulation_steps=[0-9]+"));
  const TrainConfig own = config_;
  const auto lines = change_lines(text);
  ASSERT_FALSE(lines.empty());
  for (const std::string& line : lines) {
    if (line.find('#') != std::string::npos) continue;
    config_ = with_words(own, line);
    EXPECT_EQ(problem(), "") << line;
  }
}

TEST_F(Preflight, ChangesThatSufficeOnlyTogetherAreALineEach) {
  machine_ = MachineRoots{.proc = folder_.path(), .cgroup = folder_.file("no-groups")};
  config_.model.mlp_dim = 32'768;
  config_.remat_policy = RematPolicy::kNone;
  config_.per_device_batch_size = 512;
  const auto mib_needed = [&] {
    write_file(folder_.file("meminfo"), "MemAvailable: 1024 kB\n");
    const std::string text = problem();
    return std::stoll(text.substr(std::string("the training needs ").size()));
  };
  TrainConfig least = config_;
  least.per_device_batch_size = 1;
  least.remat_policy = RematPolicy::kFull;
  least.async_checkpointing = false;
  std::swap(config_, least);
  const int64_t enough = mib_needed() + 1;
  std::swap(config_, least);
  ASSERT_GT(mib_needed(), enough);
  write_file(folder_.file("meminfo"), "MemAvailable: " + std::to_string(enough * 1024) + " kB\n");
  EXPECT_THAT(problem(), AllOf(HasSubstr("available\nwhat would fit, each by itself:\n"),
                               HasSubstr("\n  per_device_batch_size=1 remat_policy=full "
                                         "async_checkpointing=False"),
                               HasSubstr("\n  per_device_batch_size=1 remat_policy=full "
                                         "dcn_fsdp_parallelism=")));
  config_ = least;
  EXPECT_EQ(problem(), "");
}

// If the smallest batch and full remat do not suffice, each line has more values, and each fits.
TEST_F(Preflight, ShorterSequencesMoreNodesAndFewerLayersAreVerified) {
  machine_ = MachineRoots{.proc = folder_.path(), .cgroup = folder_.file("no-groups")};
  config_.model.num_layers = 16;
  config_.model.mlp_dim = 16'384;
  config_.max_target_length = 8192;
  config_.remat_policy = RematPolicy::kNone;
  config_.per_device_batch_size = 4;
  const auto available = [&](int64_t mib) {
    write_file(folder_.file("meminfo"), "MemAvailable: " + std::to_string(mib * 1024) + " kB\n");
  };
  const auto mib_needed = [&] {
    available(1);
    return std::stoll(problem().substr(std::string("the training needs ").size()));
  };
  TrainConfig least = config_;
  least.per_device_batch_size = 1;
  least.remat_policy = RematPolicy::kFull;
  least.async_checkpointing = false;
  TrainConfig shorter = least;
  shorter.max_target_length = 1024;
  std::swap(config_, shorter);
  const int64_t enough = mib_needed() + 1;
  std::swap(config_, shorter);
  available(enough);
  const std::string text = problem();
  EXPECT_THAT(text, HasSubstr("available\nwhat would fit"));
  const std::string keys = "  per_device_batch_size=1 remat_policy=full async_checkpointing=False ";
  ASSERT_THAT(text, HasSubstr(keys + "max_target_length="));
  const size_t at = text.find("max_target_length=") + std::string("max_target_length=").size();
  config_ = least;
  config_.max_target_length = std::stoi(text.substr(at));
  EXPECT_GE(config_.max_target_length, 1024);
  EXPECT_EQ(problem(), "");
}

// Settings of a training, and a smaller model, are of no use to an evaluation.
TEST_F(Preflight, AnEvaluationGetsChangesOfAnEvaluation) {
  machine_ = MachineRoots{.proc = folder_.path(), .cgroup = folder_.file("no-groups")};
  config_.model.mlp_dim = 32'768;
  config_.remat_policy = RematPolicy::kNone;
  config_.per_device_batch_size = 64;
  config_.steps = 0;
  config_.enable_checkpointing = false;
  config_.eval.interval = 1;
  config_.eval.holdout_fraction = 0.5;
  config_.optimizer.schedule_steps = 1;
  ASSERT_TRUE(config_.only_evaluates());
  write_file(folder_.file("meminfo"), "MemAvailable: 1024 kB\n");
  const std::string nothing = problem();
  EXPECT_THAT(nothing, HasSubstr("the evaluation needs "));
  EXPECT_THAT(nothing,
              HasSubstr("; nothing was found that fits: the smallest batch, more nodes along "
                        "dcn_fsdp_parallelism and shorter sequences need more"));
  EXPECT_THAT(nothing, Not(HasSubstr("remat_policy")));
  const int64_t needed = std::stoll(nothing.substr(std::string("the evaluation needs ").size()));
  write_file(folder_.file("meminfo"),
             "MemAvailable: " + std::to_string((needed - 1) * 1024) + " kB\n");
  const std::string fits = problem();
  EXPECT_THAT(fits, HasSubstr("\n  per_device_batch_size="));
  EXPECT_THAT(fits, Not(HasSubstr("remat_policy")));
  EXPECT_THAT(fits, Not(HasSubstr("gradient_accumulation_steps")));
  EXPECT_THAT(fits, Not(HasSubstr("with a model of")));
}

TEST_F(Preflight, ASmallerModelIsVerified) {
  machine_ = MachineRoots{.proc = folder_.path(), .cgroup = folder_.file("no-groups")};
  config_.model.num_layers = 8;
  config_.model.mlp_dim = 65'536;
  write_file(folder_.file("meminfo"), "MemAvailable: 200000 kB\n");
  const std::string text = problem();
  constexpr std::string_view kModel = "with a model of ";
  ASSERT_THAT(text, ContainsRegex("with a model of [0-9]+ layers? of width 32 "
                                  "\\([0-9,]+ parameters\\)"));
  config_.per_device_batch_size = 1;
  config_.remat_policy = RematPolicy::kFull;
  config_.async_checkpointing = false;
  config_.model.num_layers = std::stoi(text.substr(text.find(kModel) + kModel.size()));
  EXPECT_LT(config_.model.num_layers, 8);
  EXPECT_EQ(problem(), "");
}

// Uneven shares and writers: the bound is the memory that all ranks will map, to the byte.
TEST_F(Preflight, TheMemoryOfANodeIsThatOfItsRanks) {
  config_ = along_tensor(tiny_config(4));
  config_.mesh.ici[static_cast<size_t>(MeshAxis::kTensor)] = 2;
  config_.mesh.ici[static_cast<size_t>(MeshAxis::kFsdp)] = 2;
  config_.model.vocab_size = 100'001;
  config_.enable_checkpointing = true;
  config_.checkpoint_directory = folder_.file("ckpt");
  config_.threads = 1;
  machine_ = MachineRoots{.proc = folder_.path(), .cgroup = folder_.file("no-groups")};
  size_t bytes = 0;
  for (int32_t rank = 0; rank < 4; ++rank) {
    bytes +=
        (size_t{64} << 20) + plan_training(config_, 1, Staging::kYes, rank).memory().total_bytes();
  }
  const auto with_memory = [&](size_t kib) {
    write_file(folder_.file("meminfo"), "MemAvailable: " + std::to_string(kib) + " kB\n");
    return problem();
  };
  EXPECT_EQ(with_memory((bytes + 1023) / 1024), "");
  EXPECT_THAT(with_memory((bytes - 1) / 1024),
              MatchesRegex("the training needs .* \\(4 ranks, of which rank 1 takes most, [0-9]+ "
                           "MiB, and [0-9]+ MiB for a checkpoint in the background\\), but .*"));
}

// Local checkpoints are two saves and the copies of another node's: they count as the node's
// memory, and for the folder's file system.
TEST_F(Preflight, LocalCheckpointsAreCounted) {
  config_ = tiny_config(1);
  config_.mesh = {};
  config_.mesh.dcn[static_cast<size_t>(MeshAxis::kFsdp)] = 2;
  config_.enable_checkpointing = true;
  config_.checkpoint_directory = folder_.file("ckpt");
  config_.enable_emergency_checkpoint = true;
  config_.local_checkpoint_period = 1;
  config_.local_checkpoint_directory = folder_.file("memory");
  config_.model.vocab_size = 100'000;
  machine_ = MachineRoots{.proc = folder_.path(), .cgroup = folder_.file("no-groups")};
  write_file(folder_.file("meminfo"), "MemAvailable: 1024 kB\n");
  // 6.4 million parameters of 12 bytes, half of them on each node; each node stores both halves
  // twice.
  EXPECT_THAT(problem(), HasSubstr(", and 147 MiB for local checkpoints), but this machine"));
  write_file(folder_.file("meminfo"), "MemAvailable: 307200 kB\n");
  EXPECT_THAT(problem(), HasSubstr("\n  enable_emergency_checkpoint=False"));
  write_file(folder_.file("meminfo"), "MemAvailable: 99999999999999 kB\n");
  EXPECT_EQ(problem(), "");
  config_.model.vocab_size = 1 << 24;
  config_.model.emb_dim = 1 << 18;
  EXPECT_THAT(problem(), HasSubstr("enable_emergency_checkpoint: " + folder_.file("memory") +
                                   " has no room for local checkpoints: a node stores"));
}

// Docker gives a container 64 MiB of /dev/shm, which its own limit of memory does not show.
TEST_F(Preflight, SizesOfTheFileSystemOfLocalCheckpoints) {
  if (geteuid() != 0) GTEST_SKIP() << "mounting needs root";
  config_.mesh = {};
  config_.mesh.dcn[static_cast<size_t>(MeshAxis::kFsdp)] = 2;
  config_.enable_emergency_checkpoint = true;
  config_.local_checkpoint_period = 1;
  config_.local_checkpoint_directory = folder_.file("shm");
  std::filesystem::create_directory(folder_.file("shm"));
  machine_ = MachineRoots{.proc = folder_.path(), .cgroup = folder_.file("no-groups")};
  write_file(folder_.file("meminfo"), "MemAvailable: 99999999999 kB\n");
  struct {
    const char* name;
    int64_t vocab_size;
    double size;  // in parts of what a node stores
    size_t bytes;
    bool fits;
  } const cases[] = {
      {"nothing", kTextVocab, 0, 4096, false},
      {"half", kTextVocab, 0.5, 0, false},
      {"a page too few", kTextVocab, 1, size_t{0} - 4096, false},
      {"a page more", kTextVocab, 1, 4096, true},
      {"Docker's default for a small model", kTextVocab, 0, 64 << 20, true},
      {"Docker's default for a larger model", 100'000, 0, 64 << 20, false},
      {"what the larger model needs", 100'000, 1, 4096, true},
  };
  for (const auto& one : cases) {
    config_.model.vocab_size = one.vocab_size;
    const size_t needed = std::ranges::max(local_bytes_by_node(config_, mesh_of(config_.mesh)));
    constexpr size_t kPage = 4096;
    const size_t bytes =
        (static_cast<size_t>(one.size * static_cast<double>(needed)) + one.bytes) / kPage * kPage;
    const std::string options = "size=" + std::to_string(bytes);
    if (mount("muster", folder_.file("shm").c_str(), "tmpfs", 0, options.c_str()) != 0)
      GTEST_SKIP() << "no mounts here";
    const std::string text = problem();
    umount(folder_.file("shm").c_str());
    if (one.fits) {
      EXPECT_EQ(text, "") << one.name;
    } else {
      EXPECT_THAT(text, ContainsRegex("^enable_emergency_checkpoint: " + folder_.file("shm") +
                                      " has no room for local checkpoints: a node stores [0-9.]+ "
                                      "MiB .*, [0-9.]+ MiB are free; make it larger"))
          << one.name;
    }
  }
}

TEST_F(Preflight, AVocabularyIsThatOfTheTokenizerOrLarger) {
  config_.model.vocab_size = 319;
  EXPECT_THAT(problem(), HasSubstr("has a vocabulary of 320, but vocab_size=319; it must be at "
                                   "least 320"));
  config_.tokenizer_path = "";
  EXPECT_THAT(problem(), HasSubstr("was made with a vocabulary of 320, but vocab_size=319"));
  config_.model.vocab_size = 512;
  EXPECT_EQ(problem(), "");
}

TEST_F(Preflight, AnotherTokenizerOfTheSameSizeIsFound) {
  write_file(folder_.file("other.txt"),
             read_file(folder_.file("text.txt")).substr(2000) + "Blessed are the peacemakers.\n");
  ASSERT_TRUE(train_tokenizer({.input = folder_.file("other.txt"),
                               .vocab_size = kTextVocab,
                               .output = folder_.file("o.model")})
                  .ok());
  config_.tokenizer_path = folder_.file("o.model");
  EXPECT_THAT(problem(), HasSubstr("was made with another tokenizer"));
}

TEST_F(Preflight, ATruncatedShardIsNamedWithTheOffset) {
  std::filesystem::resize_file(folder_.file("data/shard-00000.mtok"), 1001);
  EXPECT_THAT(problem(), HasSubstr("shard-00000.mtok truncated"));
  EXPECT_THAT(problem(), HasSubstr("offset 1001"));
}

TEST_F(Preflight, ADamagedShardIsFoundByItsChecksum) {
  std::string bytes = read_file(folder_.file("data/shard-00000.mtok"));
  bytes[200] = static_cast<char>(bytes[200] ^ 1);
  write_file(folder_.file("data/shard-00000.mtok"), bytes);
  EXPECT_THAT(problem(), HasSubstr("is damaged"));
}

TEST_F(Preflight, ASequenceLongerThanTheDataIsBadInput) {
  config_.max_target_length = 10'000'000;
  EXPECT_THAT(problem(), HasSubstr("lower max_target_length (10000000)"));
}

TEST_F(Preflight, ACheckpointDirectoryThatCannotBeWrittenIsBadInput) {
  config_.checkpoint_directory = folder_.file("text.txt/ckpt");
  EXPECT_THAT(problem(), HasSubstr("text.txt/ckpt"));
}

TEST_F(Preflight, ACheckpointThatDoesNotFitTheDiskIsBadInput) {
  config_.tokenizer_path = "";
  config_.dataset_type = DatasetType::kSynthetic;
  config_.model.vocab_size = 1 << 24;
  config_.model.emb_dim = 1 << 18;
  EXPECT_THAT(problem(), HasSubstr("has no room: a checkpoint takes"));
}

TEST_F(Preflight, ACheckpointOfAnotherModelNamesTheTensor) {
  ASSERT_EQ(run(config_).codes[0], ExitCode::kOk);
  EXPECT_EQ(problem(), "");
  config_.model.num_layers = 3;
  EXPECT_THAT(problem(), HasSubstr("it has no tensor model.layers.2.input_layernorm.weight"));
}

TEST_F(Preflight, IncompleteCheckpointsAreRefusedHereAndAtTheStart) {
  ASSERT_EQ(run(config_).codes[0], ExitCode::kOk);
  for (const auto& entry : std::filesystem::directory_iterator(folder_.file("ckpt"))) {
    if (entry.is_directory()) std::filesystem::remove(entry.path() / "manifest.json");
  }
  EXPECT_THAT(problem(), HasSubstr("set another run_name"));
  const RunResult again = run(config_);
  EXPECT_EQ(again.codes[0], ExitCode::kBadInput);
  EXPECT_THAT(again.err, HasSubstr("set another run_name"));
}

TEST_F(Preflight, AMetricsFileThatCannotBeWrittenIsBadInput) {
  config_.metrics_file = folder_.file("text.txt/metrics");
  EXPECT_THAT(problem(), HasSubstr("metrics_file"));
}

TEST_F(Preflight, ARefusalLeavesNoFolders) {
  config_.checkpoint_directory = folder_.file("run/ckpt");
  config_.metrics_file = folder_.file("run/log/" + std::string(300, 'x'));
  EXPECT_THAT(problem(), HasSubstr("metrics_file"));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("run")));
  config_.metrics_file = folder_.file("run/log/metrics");
  EXPECT_EQ(problem(), "");
  EXPECT_TRUE(std::filesystem::exists(folder_.file("run/ckpt")));
}

}  // namespace
}  // namespace muster::trainer
