// Names in a checkpoint directory: only the store's own are counted, read and removed.
#include "trainer_core/checkpoint/names.h"

#include <sys/stat.h>

#include <array>
#include <random>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/checkpoint/checkpoint_helpers.h"
#include "trainer_core/checkpoint/local_part.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

struct FolderName {
  const char* text;
  int64_t step;  // -1: not a step's
};

const FolderName kFolderNames[] = {
    {"0006", -1},
    {"6", 6},
    {"0", 0},
    {"00", -1},
    {"-0", -1},
    {"+6", -1},
    {"-6", -1},
    {" 6", -1},
    {"6 ", -1},
    {"6.0", -1},
    {"6-copy", -1},
    {"0x6", -1},
    {"6e0", -1},
    {"", -1},
    {"six", -1},
    {"9223372036854775807", 9223372036854775807},
    {"1_000", -1},
    {"9223372036854775808", -1},
    {"6\n", -1},
    {"\xD9\xA6", -1},  // an Arabic digit
    {"1000000", 1000000},
};

TEST(CheckpointNames, OnlyNumbersThatPrintBackAreSteps) {
  for (const FolderName& name : kFolderNames)
    EXPECT_EQ(step_of_folder(name.text).value_or(-1), name.step) << name.text;
}

TEST(CheckpointNames, OnlyTheStoresOwnNamesAreLeftovers) {
  for (const char* name :
       {".tmp-6-7-1-18446744073709551615", ".tmp-6-0-0-0", ".tmp-removed-6-7-1-100", ".tmp-6",
        ".tmp-owner-7-1-aZ09bc", ".tmp-probe-aZ09bc", ".tmp-9-7-2"})
    EXPECT_TRUE(is_leftover(name)) << name;
  for (const char* name :
       {".tmp-", ".tmp", ".tmp-mine", ".tmp-0006-7-1-100", ".tmp-6-7-1-100-5", ".tmp-6-copy",
        ".tmp-removed-", ".tmp-removed-x", ".tmp-owner-7-1-short", ".tmp-owner-7-aZ09bc",
        ".tmp-probe-", ".tmp-probe-aZ09bcd", ".tmp-6-", ".tmp--6", "tmp-6", ".aside-6", "6"})
    EXPECT_FALSE(is_leftover(name)) << name;
  for (const char* name : {".aside-6", ".aside-0"}) EXPECT_TRUE(is_aside(name)) << name;
  for (const char* name : {".aside-0006", ".aside-", ".aside-mine", "6"})
    EXPECT_FALSE(is_aside(name)) << name;
}

TEST(CheckpointNames, OnlyNamesThatPrintBackAreLocalSaves) {
  EXPECT_EQ(step_of_local_save(local_save_name(6, 255)), 6);
  for (const char* name :
       {"06-00000000000000ff", "+6-00000000000000ff", "-0-00000000000000ff", " 6-00000000000000ff",
        "6-00000000000000FF", "6-ff", "6", "-00000000000000ff"})
    EXPECT_EQ(step_of_local_save(name), -1) << name;
}

void save_step(const CheckpointStore& store, int64_t step) {
  const absl::Status status = save_state(store, step, State(static_cast<float>(step)));
  ASSERT_TRUE(status.ok()) << status;
}

// The fault that was reported: a copy called 0006 counted as a step, and a good checkpoint was
// removed to keep the number.
TEST(CheckpointNames, CopiesTakeNoPlaceOfACheckpointAndStay) {
  const TempFolder folder;
  const CheckpointStore store(folder.path(), 2);
  save_step(store, 6);
  for (const char* copy : {"0006", "6.bak", "+6", "06", "best", "5", ".aside-best", ".tmp-best"})
    fs::copy(folder.file("6"), folder.file(copy), fs::copy_options::recursive);
  store.remove_leftovers();
  save_step(store, 8);
  EXPECT_TRUE(fs::exists(folder.file("6"))) << "two are to be kept";
  save_step(store, 10);
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{"+6", ".aside-best", ".tmp-best", "0006", "06", "10", "5",
                                      "6.bak", "8", "best"}));
}

// Names of steps that are no folders.
TEST(CheckpointNames, FilesWithNumbersAreNoCheckpointsAndStay) {
  const TempFolder folder;
  const CheckpointStore store(folder.path(), 1);
  save_step(store, 6);
  write_file(folder.file("7"), "a log");
  write_file(folder.file("100"), "");
  fs::create_symlink("7", folder.file("101"));
  ASSERT_EQ(mkfifo(folder.file("102").c_str(), 0600), 0);
  std::vector<std::string> notes;
  const auto newest = store.newest(notes, /*checksums=*/true);
  ASSERT_TRUE(newest.ok() && newest->has_value()) << newest.status();
  EXPECT_EQ((*newest)->step, 6);
  EXPECT_TRUE(notes.empty());
  EXPECT_FALSE(save_state(store, 7, State(7)).ok()) << "its name is taken";
  save_step(store, 8);
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"100", "101", "102", "7", "8"}));
}

TEST(CheckpointNames, ACopyIsNotTheNewest) {
  const TempFolder folder;
  const CheckpointStore store(folder.path(), -1);
  save_step(store, 6);
  fs::copy(folder.file("6"), folder.file("0099"), fs::copy_options::recursive);
  std::vector<std::string> notes;
  const auto newest = store.newest(notes, /*checksums=*/true);
  ASSERT_TRUE(newest.ok() && newest->has_value()) << newest.status();
  EXPECT_EQ((*newest)->step, 6);
  EXPECT_TRUE(notes.empty());
  fs::remove_all(folder.file("6"));
  const auto none = store.newest(notes, /*checksums=*/true);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->has_value()) << "only a copy is left, which its owner may name as a path";
}

// Whatever a user puts into the directory stays, through saves, removals and a restart.
TEST(CheckpointNames, RandomNamesStay) {
  constexpr std::array kPieces = {"0",        "6",      "-",     ".", "+", " ",  ".tmp-", ".aside-",
                                  "removed-", "owner-", "probe", "é", "x", "10", "~"};
  std::mt19937 random(7);
  const TempFolder folder;
  const CheckpointStore store(folder.path(), 1);
  std::vector<std::string> users;
  for (int i = 0; i < 300; ++i) {
    std::string name;
    for (size_t pieces = 1 + random() % 5; pieces > 0; --pieces)
      name += kPieces[random() % kPieces.size()];
    if (name == "." || name == ".." || step_of_folder(name) || is_leftover(name) || is_aside(name))
      continue;
    if (fs::create_directory(folder.file(name))) users.push_back(name);
  }
  ASSERT_GT(users.size(), 100U);
  for (const int64_t step : {6, 10, 60}) save_step(store, step);
  store.remove_leftovers();
  users.emplace_back("60");
  std::sort(users.begin(), users.end());
  EXPECT_EQ(names_in(folder.path()), users);
}

}  // namespace
}  // namespace muster::trainer
