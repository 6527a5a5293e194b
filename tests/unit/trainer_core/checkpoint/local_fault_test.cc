// Kills a process, or fails its storage, at every file system call of a local save: on its own node
// and on its keeper's a complete save remains, the previous or the new one, bit for bit.
#include <gmock/gmock.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/checkpoint/checkpoint_helpers.h"
#include "tests/unit/trainer_core/checkpoint/traced_process.h"
#include "trainer_core/checkpoint/local_store.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

// Copies like a keeper: file by file, then the part.
absl::Status copy(const LocalStore& from, const LocalStore& to, const std::string& text) {
  const auto part = parse_local_part(text);
  if (!part.ok()) return part.status();
  if (auto status = to.begin(part->save); !status.ok()) return status;
  const auto files = parse_files(part->files);
  if (!files.ok()) return files.status();
  for (const StoredFile& file : *files) {
    auto arriving = ArrivingFile::create(to.folder_of(part->save), file);
    if (!arriving.ok()) return arriving.status();
    std::ostringstream read;
    read << std::ifstream(from.folder_of(part->save) + "/" + file.name, std::ios::binary).rdbuf();
    const std::string bytes = read.str();
    absl::Status status = (*arriving)->append({bytes.data(), bytes.size()});
    if (status.ok()) status = (*arriving)->finish();
    if (!status.ok()) return status;
  }
  return to.store_record(*part, text);
}

// On both nodes, and then the one before is removed; what fails is removed.
absl::Status save(const LocalStore& own, const LocalStore& keeper, int64_t step, State state) {
  const std::string name = local_save_name(step, 7);
  absl::Status status = own.begin(name);
  if (status.ok()) {
    const auto text = own.write({name, 0, info_of(step), {}}, layout(), state.blocks(), kFileBytes);
    status = text.ok() ? copy(own, keeper, *text) : text.status();
  }
  for (const LocalStore* store : {&own, &keeper}) {
    if (status.ok()) {
      store->remove_others(name);
    } else {
      store->remove(name);
    }
  }
  return status;
}

class LocalFaults : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_trace()) GTEST_SKIP() << "this place refuses ptrace";
  }

  TracedEnd run(const std::function<Decision(size_t, const FileCall&)>& decide) {
    folder_ = std::make_unique<TempFolder>(quick_disk());
    own_ = std::make_unique<LocalStore>(folder_->file("own"));
    keeper_ = std::make_unique<LocalStore>(folder_->file("keeper"));
    EXPECT_TRUE(own_->open().ok() && keeper_->open().ok());
    EXPECT_TRUE(save(*own_, *keeper_, 1, old_).ok());
    return run_traced([this] { return save(*own_, *keeper_, 2, new_).ok() ? 0 : 1; }, decide);
  }

  // The newest save that a node has whole and undamaged, which must be one of both; 0: none.
  int64_t newest_on(const LocalStore& store) {
    std::vector<std::string> notes;
    for (const LocalCandidate& found : complete_saves(store.parts(), 0, notes)) {
      auto manifest = parse_manifest(found.manifest);
      EXPECT_TRUE(manifest.ok()) << manifest.status();
      manifest->info.folder = store.folder_of(found.save);
      State restored(0);
      const auto read = read_held(*manifest, layout(), restored.blocks());
      if (!read.ok()) continue;  // half removed
      EXPECT_EQ(restored, found.info.step == 2 ? new_ : old_);
      return found.info.step;
    }
    return 0;
  }

  const State old_{1}, new_{1000};
  std::unique_ptr<TempFolder> folder_;
  std::unique_ptr<LocalStore> own_, keeper_;
};

TEST_F(LocalFaults, AKillAtEveryCallLeavesACompleteSaveOnBothNodes) {
  const TracedEnd complete = run([](size_t, const FileCall&) { return Decision{}; });
  ASSERT_EQ(complete.exit_code, 0);
  EXPECT_EQ(newest_on(*own_), 2);
  EXPECT_EQ(newest_on(*keeper_), 2);
  ASSERT_GT(complete.calls.size(), 30U);
  ASSERT_LT(complete.calls.size(), 400U) << "a run of this test for each";
  int found_new = 0;
  for (size_t at = 0; at < complete.calls.size(); ++at) {
    for (const Fate fate : {Fate::kKill, Fate::kTear}) {
      if (fate == Fate::kTear && complete.calls[at].name != "write") continue;
      const TracedEnd end = run([&](size_t number, const FileCall&) {
        return number == at ? Decision{fate, 0} : Decision{};
      });
      ASSERT_TRUE(end.killed) << "call " << at;
      const int64_t own = newest_on(*own_), keeper = newest_on(*keeper_);
      EXPECT_GE(own, 1);
      EXPECT_GE(keeper, 1);
      found_new += own == 2 ? 1 : 0;
      // The next save leaves nothing of it.
      EXPECT_TRUE(save(*own_, *keeper_, 3, old_).ok());
      EXPECT_EQ(names_in(own_->folder()).size(), 1U);
      EXPECT_EQ(names_in(keeper_->folder()).size(), 1U);
      ASSERT_FALSE(HasFailure()) << "killed at call " << at << ", " << end.calls[at].text();
    }
  }
  EXPECT_GT(found_new, 3);
}

TEST_F(LocalFaults, AFailedCallLeavesTheOldOrTheNewSave) {
  const size_t calls = run([](size_t, const FileCall&) { return Decision{}; }).calls.size();
  int failed = 0;
  for (size_t at = 0; at < calls; ++at) {
    const TracedEnd end = run([&](size_t number, const FileCall&) {
      return number == at ? Decision{Fate::kFail, ENOSPC} : Decision{};
    });
    ASSERT_FALSE(end.killed);
    const int64_t expected = end.exit_code == 0 ? 2 : 1;
    EXPECT_EQ(newest_on(*own_), expected);
    EXPECT_EQ(newest_on(*keeper_), expected);
    failed += end.exit_code;
    ASSERT_FALSE(HasFailure()) << "call " << at << ", " << end.calls[at].text();
  }
  EXPECT_GT(failed, 15);
}

}  // namespace
}  // namespace muster::trainer
