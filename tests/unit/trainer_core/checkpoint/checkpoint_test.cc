#include "trainer_core/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/checkpoint/checkpoint_helpers.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

void save(const CheckpointStore& store, int64_t step, State state) {
  const absl::Status status = save_state(store, step, std::move(state));
  ASSERT_TRUE(status.ok()) << status;
}

int64_t newest_step(const CheckpointStore& store, std::vector<std::string>* notes = nullptr) {
  std::vector<std::string> ignored;
  auto newest = store.newest(notes != nullptr ? *notes : ignored, /*checksums=*/true);
  EXPECT_TRUE(newest.ok()) << newest.status();
  return newest->has_value() ? (*newest)->step : -1;
}

TEST(Checkpoint, RestoresWhatWasSaved) {
  TempFolder folder;
  const CheckpointStore store(folder.file("ckpt"), -1);
  ASSERT_TRUE(store.prepare().ok());
  EXPECT_EQ(newest_step(store), -1);
  save(store, 20, State(1));
  std::vector<std::string> notes;
  auto newest = store.newest(notes, /*checksums=*/true);
  ASSERT_TRUE(newest.ok() && newest->has_value());
  EXPECT_EQ((*newest)->samples, 160U);
  EXPECT_EQ((*newest)->config.at("steps"), 100);
  State restored(0);
  const absl::Status status = restore_checkpoint((*newest)->folder, layout(), restored.blocks());
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(restored == State(1));
  EXPECT_TRUE(notes.empty());
}

// A reader that waits for a save sees it begin, grow and end.
TEST(Checkpoint, ASaveShowsItsProgress) {
  TempFolder folder;
  CheckpointStore store(folder.file("ckpt"), -1);
  ASSERT_TRUE(store.prepare().ok());
  std::vector<std::pair<uint32_t, uint32_t>> shown;
  store.report_progress_to(
      [&](uint32_t saving, uint32_t written) { shown.emplace_back(saving, written); });
  save(store, 20, State(1));
  ASSERT_GE(shown.size(), 3U);
  EXPECT_EQ(shown.front(), std::pair(1U, 0U)) << "less than 1 MiB, and nothing written";
  EXPECT_EQ(shown[shown.size() - 2], std::pair(1U, 1U));
  EXPECT_EQ(shown.back(), std::pair(0U, 0U));
}

TEST(SaveMeter, ReachesTheTotalWithTheLastByteOnly) {
  std::vector<std::pair<uint32_t, uint32_t>> shown;
  SaveMeter meter([&](uint32_t saving, uint32_t written) { shown.emplace_back(saving, written); });
  meter.begin((3 << 20) + 1);
  meter.add(1 << 20);
  meter.add(2 << 20);
  meter.add(1);
  meter.complete();
  meter.end();
  using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;
  EXPECT_EQ(shown, (Pairs{{4, 0}, {4, 1}, {4, 3}, {4, 4}, {4, 4}, {0, 0}}));
}

// During an upload both values grow: no byte is due within a fixed time, but its progress shows.
TEST(SaveMeter, CountsWhatAnUploadSends) {
  std::vector<std::pair<uint32_t, uint32_t>> shown;
  SaveMeter meter([&](uint32_t saving, uint32_t written) { shown.emplace_back(saving, written); });
  meter.sent(9 << 20);  // outside of a save
  meter.begin(3 << 20);
  meter.sent(9 << 20);  // before the part is written
  meter.add(3 << 20);
  meter.complete();
  meter.sent(1 << 20);
  meter.sent(1 << 20);
  meter.sent(1 << 19);  // a repetition begins at 0
  meter.sent(3 << 20);
  meter.end();
  meter.sent(4 << 20);
  meter.begin(1 << 20);
  using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;
  EXPECT_EQ(shown, (Pairs{{3, 0}, {3, 3}, {3, 3}, {4, 4}, {6, 6}, {0, 0}, {1, 0}}));
}

TEST(Checkpoint, ParametersAloneAreEnoughToDecode) {
  TempFolder folder;
  const CheckpointStore store(folder.path(), -1);
  save(store, 1, State(7));
  std::vector<float> params(15);
  ASSERT_TRUE(restore_parameters(folder.file("1"), layout().params.tensors, params).ok());
  EXPECT_EQ(params, State(7).params);
}

// A large model in small files has more of them than a process may open.
TEST(Checkpoint, MoreFilesThanDescriptors) {
  constexpr int64_t kRows = 300;
  constexpr rlim_t kDescriptors = 128;
  const CheckpointLayout many = {.params = ShardedTensors::whole({{"w", {kRows, 1}, 0}}),
                                 .optimizer = "none kept",
                                 .state = {}};
  std::vector<float> params(kRows), none, restored(kRows);
  std::iota(params.begin(), params.end(), 1.0F);
  TempFolder folder;
  const CheckpointStore store(folder.path(), -1, /*file_bytes=*/sizeof(float));
  std::vector<std::string> notes;
  ASSERT_TRUE(store.save(info_of(1), many, {params, none}, notes).ok());
  ASSERT_GT(names_in(folder.file("1")).size(), kDescriptors);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{kDescriptors, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const absl::Status status = restore_checkpoint(folder.file("1"), many, {restored, none});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(restored, params);
}

TEST(Checkpoint, KeepsTheNewestAndReplacesItsOwnStep) {
  TempFolder folder;
  const CheckpointStore store(folder.path(), 2);
  for (const int64_t step : {9, 10, 11, 100}) save(store, step, State(static_cast<float>(step)));
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"100", "11"}));
  save(store, 100, State(5));
  State restored(0);
  ASSERT_TRUE(restore_checkpoint(folder.file("100"), layout(), restored.blocks()).ok());
  EXPECT_TRUE(restored == State(5));
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"100", "11"}));
}

// A training that has passed over a damaged checkpoint continues with lower steps: those are its
// newest.
TEST(Checkpoint, PassedOverCheckpointsDoNotCount) {
  TempFolder folder;
  for (const int64_t step : {20, 30}) save(CheckpointStore(folder.path(), -1), step, State(1));
  const std::string part = folder.file("30/optimizer-00000-00000.safetensors");
  std::string bytes = read_file(part);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(part, bytes);
  const CheckpointStore store(folder.path(), 1);
  for (const int64_t step : {21, 24}) {
    save(store, step, State(static_cast<float>(step)));
    EXPECT_EQ(newest_step(store), step);
  }
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"24", "30"}));
}

TEST(Checkpoint, AnOldOneThatCannotBeRemovedIsANoteAndTheNewOneIsSaved) {
  if (unshare(CLONE_NEWNS) != 0) GTEST_SKIP() << "mounting needs root";
  ASSERT_EQ(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  TempFolder folder;
  const CheckpointStore store(folder.path(), 1);
  save(store, 1, State(1));
  const std::string old = folder.file("1");
  ASSERT_EQ(mount(old.c_str(), old.c_str(), nullptr, MS_BIND, nullptr), 0) << "busy from now on";
  State state(2);
  std::vector<std::string> notes;
  EXPECT_TRUE(store.save(info_of(2), layout(), state.blocks(), notes).ok());
  EXPECT_THAT(notes, testing::ElementsAre(HasSubstr("cannot remove old checkpoint " + old)));
  EXPECT_EQ(umount(old.c_str()), 0);
  EXPECT_EQ(newest_step(store), 2);
}

TEST(Checkpoint, ATornOrDamagedOneIsPassedOverWithALine) {
  TempFolder folder;
  const CheckpointStore store(folder.path(), -1);
  for (const int64_t step : {1, 2, 3, 4, 5}) save(store, step, State(static_cast<float>(step)));
  fs::remove(folder.file("5/manifest.json"));
  fs::resize_file(folder.file("4/model-00000-00000.safetensors"), 40);
  std::string bytes = read_file(folder.file("3/optimizer-00000-00000.safetensors"));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(folder.file("3/optimizer-00000-00000.safetensors"), bytes);
  fs::create_directories(folder.file(".tmp-6"));
  write_file(folder.file(".tmp-6/model.safetensors"), "half");
  std::vector<std::string> notes;
  EXPECT_EQ(newest_step(store, &notes), 2);
  ASSERT_EQ(notes.size(), 3U);
  EXPECT_THAT(notes[0], HasSubstr("/5 is passed over: it has no manifest.json; " +
                                  folder.file("2") + " takes its place"));
  EXPECT_THAT(notes[1], HasSubstr("model-00000-00000.safetensors is truncated"));
  EXPECT_THAT(
      notes[2],
      HasSubstr("optimizer-00000-00000.safetensors is damaged: the checksum of its bytes 0 to "));
  store.remove_leftovers();
  EXPECT_FALSE(fs::exists(folder.file(".tmp-6")));
}

TEST(Checkpoint, OnlyDamageIsPassedOver) {
  TempFolder folder;
  const CheckpointStore store(folder.path(), -1);
  for (const int64_t step : {1, 2}) save(store, step, State(1));
  const auto problem = [&] {
    std::vector<std::string> notes;
    const absl::Status status = store.newest(notes, /*checksums=*/true).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  std::string manifest = read_file(folder.file("2/manifest.json"));
  const std::string version = "\"version\": 3";
  manifest.replace(manifest.find(version), version.size(), "\"version\": 9");
  write_file(folder.file("2/manifest.json"), manifest);
  EXPECT_THAT(problem(), AllOf(HasSubstr("/2: it has version 9; this program reads 3"),
                               HasSubstr("made by a later build; set another run_name")));
  // A folder in the file's place emulates an unreadable file: root may read everything else.
  fs::remove(folder.file("2/manifest.json"));
  fs::create_directories(folder.file("2/manifest.json"));
  EXPECT_THAT(problem(), HasSubstr("cannot use checkpoint " + folder.file("2")));
  fs::remove_all(folder.file("2"));
  fs::remove(folder.file("1/manifest.json"));
  EXPECT_THAT(problem(), HasSubstr("move that folder away or set another run_name"));
}

TEST(Checkpoint, AHostileManifestIsAnError) {
  TempFolder folder;
  const CheckpointStore store(folder.path(), -1);
  save(store, 1, State(1));
  const std::string good = read_file(folder.file("1/manifest.json"));
  ASSERT_TRUE(parse_manifest(good).ok());
  for (size_t i = 0; i < good.size(); ++i) {
    // All but the line's end belongs to it.
    EXPECT_EQ(parse_manifest(good.substr(0, i)).ok(), i + 1 == good.size());
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x11);
    EXPECT_FALSE(parse_manifest(bad).ok()) << "a flip at " << i << " of\n" << good;
  }
}

TEST(Checkpoint, AnotherModelNamesTheFirstTensorAndBothShapes) {
  TempFolder folder;
  const CheckpointStore store(folder.path(), -1);
  save(store, 1, State(1));
  const auto problem = [&](const std::vector<TensorRow>& params) {
    CheckpointLayout other = layout();
    other.params = ShardedTensors::whole(params);
    const absl::Status status = check_tensors(folder.file("1"), other);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_TRUE(check_tensors(folder.file("1"), layout()).ok());
  EXPECT_THAT(problem({{"embed", {5, 3}, 0}, {"norm", {3}, 15}}),
              HasSubstr("tensor embed has shape [4, 3] there and [5, 3] in the config's model"));
  EXPECT_THAT(problem({{"embed", {4, 3}, 0}, {"norm", {3}, 12}, {"head", {4, 3}, 15}}),
              HasSubstr("it has no tensor head (the config's model has it with shape [4, 3])"));
  EXPECT_THAT(problem({{"embed", {4, 3}, 0}}), HasSubstr("a tensor norm of shape [3]"));
}

TEST(Checkpoint, AnotherOptimizersStateNamesBoth) {
  TempFolder folder;
  const CheckpointStore store(folder.path(), -1);
  save(store, 1, State(1));
  CheckpointLayout other = layout();
  other.optimizer = "elementwise";  // its state has the same layout
  const absl::Status status = check_tensors(folder.file("1"), other);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("has the state of opt_type=rowwise"),
                             HasSubstr("which opt_type=elementwise cannot use")));
  std::vector<float> params(15), state(7);
  EXPECT_FALSE(restore_checkpoint(folder.file("1"), other, {params, state}).ok());
  EXPECT_EQ(params, std::vector<float>(15));
}

TEST(Checkpoint, AnOptimizerWithoutState) {
  TempFolder folder;
  const CheckpointStore store(folder.path(), -1);
  CheckpointLayout plain = layout();
  plain.optimizer = "plain";
  plain.state = {};
  State state(3);
  std::vector<std::string> notes;
  ASSERT_TRUE(store.save(info_of(2), plain, {state.params, {}}, notes).ok());
  const auto info = verify_checkpoint(folder.file("2"), /*checksums=*/true);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->optimizer, "plain");
  std::vector<float> params(15);
  const absl::Status status = restore_checkpoint(folder.file("2"), plain, {params, {}});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(params, state.params);
}

TEST(Checkpoint, ADiskThatIsFullLeavesTheOldCheckpointAlone) {
  TempFolder folder;
  const CheckpointStore store(folder.path(), 1);
  save(store, 1, State(1));
  // A limit on file sizes stands in for a full disk: write() fails in the middle of the file.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit limit{100, old_limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  State state(2);
  std::vector<std::string> notes;
  const absl::Status status = store.save(info_of(2), layout(), state.blocks(), notes);
  setrlimit(RLIMIT_FSIZE, &old_limit);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("checkpoint of step 2 is not saved: cannot write"));
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"1"}));
  EXPECT_EQ(newest_step(store), 1);
}

TEST(Checkpoint, ADirectoryThatCannotBeMadeIsAnError) {
  TempFolder folder;
  write_file(folder.file("file"), "x");
  const absl::Status status = CheckpointStore(folder.file("file/ckpt"), 1).prepare();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("file/ckpt"));
}

// A step's folder that was replaced between the reads of two ranks.
TEST(Checkpoint, AnotherOneOfTheSameStepIsNotTheSame) {
  TempFolder folder;
  const CheckpointStore store(folder.path(), 1);
  ASSERT_TRUE(save_state(store, 5, State(1)).ok());
  const auto seen = read_manifest(folder.file("5"));
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_TRUE(read_same_manifest(folder.file("5"), seen->checksum).ok());
  ASSERT_TRUE(save_state(store, 5, State(2)).ok());
  const auto status = read_same_manifest(folder.file("5"), seen->checksum).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("5 holds another checkpoint than the one that rank 0 reads there"));
}

}  // namespace
}  // namespace muster::trainer
