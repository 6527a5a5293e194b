#include "trainer_core/checkpoint/publish.h"

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/checkpoint/checkpoint_helpers.h"

namespace muster::trainer {
namespace {

using Names = std::vector<std::string>;
namespace fs = std::filesystem;

class Publish : public testing::TestWithParam<Replace> {
 protected:
  void make(const std::string& name, const std::string& text) {
    fs::create_directories(folder_.file(name));
    write_file(folder_.file(name) + "/file", text);
  }
  std::string text_of(const std::string& name) { return read_file(folder_.file(name) + "/file"); }

  TempFolder folder_;
};

TEST_P(Publish, PutsTheFolderInPlaceAndRemovesTheOldOne) {
  for (const std::string text : {"first", "second"}) {
    make(".tmp-5", text);
    const absl::Status status =
        publish_folder(folder_.file(".tmp-5"), folder_.path(), "5", GetParam());
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(names_in(folder_.path()), (Names{"5"}));
    EXPECT_EQ(text_of("5"), text);
  }
}

TEST_P(Publish, AFailureLeavesTheOldOneInPlace) {
  make("5", "old");
  EXPECT_FALSE(publish_folder(folder_.file(".tmp-5"), folder_.path(), "5", GetParam()).ok());
  EXPECT_EQ(names_in(folder_.path()), (Names{"5"}));
  EXPECT_EQ(text_of("5"), "old");
}

TEST_P(Publish, AFileOfThatNameStays) {
  make(".tmp-5", "new");
  write_file(folder_.file("5"), "a user's");
  const absl::Status status =
      publish_folder(folder_.file(".tmp-5"), folder_.path(), "5", GetParam());
  EXPECT_NE(std::string(status.message()).find("5 is a file, and the checkpoint's folder needs"),
            std::string::npos)
      << status;
  EXPECT_EQ(read_file(folder_.file("5")), "a user's");
}

TEST_P(Publish, ADeathBetweenTheRenamesIsUndone) {
  make(".aside-5", "old");
  make(".aside-6", "older");
  make("6", "new");
  CheckpointStore(folder_.path(), 1).remove_leftovers();
  EXPECT_EQ(names_in(folder_.path()), (Names{"5", "6"}));
  EXPECT_EQ(text_of("5"), "old");
  EXPECT_EQ(text_of("6"), "new");
}

INSTANTIATE_TEST_SUITE_P(Both, Publish, testing::Values(Replace::kExchange, Replace::kAside));

}  // namespace
}  // namespace muster::trainer
