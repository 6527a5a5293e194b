// Injects faults at every file system call of a save: the process is killed there, also in the
// middle of a write, or the call fails. Afterwards either the previous checkpoint or the new one
// exists, bit for bit, and the next process can continue.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/checkpoint/checkpoint_helpers.h"
#include "tests/unit/trainer_core/checkpoint/thread_peers.h"
#include "tests/unit/trainer_core/checkpoint/traced_process.h"
#include "trainer_core/checkpoint/background_saver.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr CheckpointOwner kOwner{7, 1, 100};
constexpr CheckpointOwner kNextOwner{7, 2, 200};
struct Scenario {
  std::string name;
  int64_t old_step;
  int64_t new_step;
  bool can_exchange;  // two names at once
  bool two_writers = false;
};
void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

// The traced process' results of its save, in shared memory.
class SharedText {
 public:
  SharedText()
      : text_(static_cast<char*>(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~SharedText() { munmap(text_, kBytes); }
  SharedText(const SharedText&) = delete;
  SharedText& operator=(const SharedText&) = delete;

  void write(std::string_view text) {
    std::memset(text_, 0, kBytes);
    text.copy(text_, kBytes - 1);
  }
  std::string text() const { return text_; }

 private:
  static constexpr size_t kBytes = 4096;
  char* text_;
};

class Faults : public testing::TestWithParam<Scenario> {
 protected:
  void SetUp() override {
    if (!can_trace()) GTEST_SKIP() << "this place refuses ptrace";
    fs::create_directories(template_.file("ckpt"));
    ASSERT_TRUE(save_state(CheckpointStore(template_.file("ckpt"), 1, kFileBytes),
                           GetParam().old_step, old_)
                    .ok());
  }

  // Saves like a training: takes the directory, saves in the background, waits. Returns the outcome
  // as text.
  std::string save_in_background(const CheckpointLayout& of, CheckpointPeers* peers) {
    CheckpointStore store(directory_, 1, kFileBytes);
    if (const auto status = store.open(kOwner, peers); !status.ok())
      return std::string(status.message());
    State staging(0), live = new_;
    BackgroundSaver saver(
        store, of, staging.blocks(), [](const SaveOutcome&) {}, peers);
    saver.begin(info_of(GetParam().new_step), live.blocks());
    return std::string(saver.finish()->status.message());
  }

  // The layout of rank `rank` of two: a tensor and its state.
  static CheckpointLayout half(size_t rank) {
    CheckpointLayout of = layout();
    for (ShardedTensors* part : {&of.params, &of.state}) part->written = {part->written[rank]};
    return of;
  }

  int save_new() {
    std::string result, others;
    if (GetParam().two_writers) {
      ThreadPeers::Meeting meeting(2);
      ThreadPeers leader(meeting, 0), follower(meeting, 1);
      std::thread second([&] { others = save_in_background(half(1), &follower); });
      result = save_in_background(half(0), &leader);
      second.join();
      EXPECT_EQ(result, others) << "all have its outcome";
    } else {
      result = save_in_background(layout(), nullptr);
    }
    result_.write(result);
    return result.empty() ? 0 : 1;
  }

  using Decide = std::function<Decision(size_t number, const FileCall& call)>;

  TracedEnd run(const Decide& decide) {
    folder_ = std::make_unique<TempFolder>(quick_disk());
    directory_ = folder_->file("ckpt");
    fs::copy(template_.file("ckpt"), directory_, fs::copy_options::recursive);
    result_.write("");
    return run_traced([this] { return save_new(); },
                      [&](size_t number, const FileCall& call) {
                        const Decision decision = decide(number, call);
                        const bool refused = !GetParam().can_exchange && call.name == "renameat2";
                        return refused && decision.fate == Fate::kContinue
                                   ? Decision{Fate::kFail, EINVAL}
                                   : decision;
                      });
  }

  // Lets a new process restore one of both checkpoints and save again, after which nothing of the
  // old one is left. Returns whether it restored the new one.
  bool next_process_finds_the_new_one() {
    CheckpointStore store(directory_, 1, kFileBytes);
    const auto opened = store.open(kNextOwner);
    EXPECT_TRUE(opened.ok()) << opened;
    State restored(0);
    std::vector<std::string> notes;
    const auto newest = store.restore_newest(layout(), restored.blocks(), notes);
    EXPECT_TRUE(newest.ok() && newest->has_value()) << newest.status();
    EXPECT_THAT(notes, testing::IsEmpty());
    const bool is_new = restored == new_;
    EXPECT_TRUE(is_new || restored == old_);
    if (newest.ok() && newest->has_value()) {
      EXPECT_EQ((*newest)->step, is_new ? GetParam().new_step : GetParam().old_step);
    }
    const auto saved = save_state(store, 9, State(9));
    EXPECT_TRUE(saved.ok()) << saved;
    EXPECT_EQ(names_in(directory_), (std::vector<std::string>{"9", "OWNER"}));
    return is_new;
  }

  const State old_{1};
  const State new_{1000};
  TempFolder template_{quick_disk()};
  std::unique_ptr<TempFolder> folder_;
  std::string directory_;
  SharedText result_;
};

const auto kContinue = [](size_t, const FileCall&) { return Decision{}; };

TEST_P(Faults, AKillAtEveryCallLosesNothing) {
  const TracedEnd complete = run(kContinue);
  ASSERT_EQ(complete.exit_code, 0) << result_.text();
  EXPECT_TRUE(next_process_finds_the_new_one());
  ASSERT_GT(complete.calls.size(), 40U);
  ASSERT_LT(complete.calls.size(), 400U) << "a run of this test for each";
  int found_new = 0;
  for (size_t at = 0; at < complete.calls.size(); ++at) {
    for (const Fate fate : {Fate::kKill, Fate::kTear}) {
      if (fate == Fate::kTear && complete.calls[at].name != "write") continue;
      const TracedEnd end = run([&](size_t number, const FileCall&) {
        return number == at ? Decision{fate, 0} : Decision{};
      });
      ASSERT_TRUE(end.killed) << "call " << at;
      found_new += next_process_finds_the_new_one() ? 1 : 0;
      ASSERT_FALSE(HasFailure()) << "killed at call " << at << ", " << end.calls[at].text();
    }
  }
  EXPECT_GT(found_new, 3) << "kills after the checkpoint was published";
}

TEST_P(Faults, ACallThatFailsLeavesTheOldOneAndIsNamed) {
  const size_t calls = run(kContinue).calls.size();
  int failed = 0;
  for (const int error : {ENOSPC, EIO}) {
    for (size_t at = 0; at < calls; ++at) {
      const TracedEnd end = run([&](size_t number, const FileCall&) {
        return number == at ? Decision{Fate::kFail, error} : Decision{};
      });
      ASSERT_FALSE(end.killed);
      const bool is_new = next_process_finds_the_new_one();
      if (end.exit_code == 0) {
        EXPECT_TRUE(is_new) << "it reported that it had saved";
      } else {
        ++failed;
        EXPECT_THAT(result_.text(), HasSubstr(std::strerror(error)));
        EXPECT_THAT(result_.text(), HasSubstr(directory_));
      }
      ASSERT_FALSE(HasFailure()) << std::strerror(error) << " at call " << at << ", "
                                 << end.calls[at].text() << ": " << result_.text();
    }
  }
  EXPECT_GT(failed, 40);
}

TEST_P(Faults, ShortWritesAreFinished) {
  const TracedEnd end = run([](size_t, const FileCall&) { return Decision{Fate::kShorten, 0}; });
  ASSERT_EQ(end.exit_code, 0) << result_.text();
  EXPECT_TRUE(next_process_finds_the_new_one());
}

// Checks what only a power loss would reveal: a file is synced after its last write and its folder
// after its last name, both before the folder is published; and the directory is synced before the
// old checkpoint is removed.
TEST_P(Faults, EverythingIsSyncedBeforeItIsPublished) {
  const TracedEnd end = run(kContinue);
  const std::string temporary =
      directory_ + "/.tmp-" + std::to_string(GetParam().new_step) + "-7-1-100";
  // Files with contents, and folders with names, that a power loss would remove.
  std::set<std::string> unsynced;
  bool is_published = false, is_lasting = false;
  int synced_files = 0;
  for (const FileCall& call : end.calls) {
    const std::string folder = fs::path(call.path).parent_path().string();
    const bool is_rename = call.name.starts_with("rename");
    if (call.creates && folder == temporary) unsynced.insert(folder);
    if (call.name == "write" && folder == temporary) unsynced.insert(call.path);
    if (call.name == "fsync") {
      synced_files += folder == temporary && unsynced.contains(call.path) ? 1 : 0;
      unsynced.erase(call.path);
      is_lasting = is_lasting || (is_published && call.path == directory_);
    }
    if (is_rename && folder == temporary) unsynced.insert(folder);
    if (is_rename && call.path == temporary) {
      EXPECT_THAT(unsynced, testing::IsEmpty()) << call.text();
      is_published = true;
    }
    const bool removes = call.name.starts_with("unlink") ||
                         (is_rename && call.to.find("removed") != std::string::npos);
    EXPECT_TRUE(is_lasting || !is_published || !removes) << call.text();
  }
  EXPECT_TRUE(is_published && is_lasting);
  EXPECT_EQ(synced_files, GetParam().two_writers ? 5 : 4) << "those of elements and the manifest";
}

INSTANTIATE_TEST_SUITE_P(Saves, Faults,
                         testing::Values(Scenario{"next_step", 1, 2, true},
                                         Scenario{"same_step", 2, 2, true},
                                         Scenario{"same_step_without_exchange", 2, 2, false},
                                         Scenario{"two_writers", 1, 2, true, true}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace muster::trainer
