#include "coordinator/shell/storage/state_files.h"

#include <gmock/gmock.h>

#include <fstream>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::coordinator {
namespace {

using ::testing::HasSubstr;

std::string problem(const TempFolder& folder, bool has_etcd) {
  return std::string(check_state_files(folder.path(), has_etcd).message());
}

TEST(StateFiles, EachKindOfCoordinatorRefusesTheFilesOfTheOther) {
  const TempFolder single, of_several;
  for (const bool has_etcd : {false, true}) EXPECT_EQ(problem(single, has_etcd), "");
  EXPECT_EQ(present_file(single.path()), own_state_file(single.path()));
  std::ofstream(own_state_file(single.path())) << "state";
  EXPECT_EQ(problem(single, false), "");
  EXPECT_THAT(problem(single, true), HasSubstr("/muster.db is the state of a coordinator without"));

  std::ofstream(mirror_file(of_several.path())) << "copy";
  EXPECT_EQ(problem(of_several, true), "");
  EXPECT_THAT(problem(of_several, false), HasSubstr("/etcd-mirror.db: the state of this"));
  EXPECT_EQ(present_file(of_several.path()), mirror_file(of_several.path()));
}

TEST(StateFiles, AStateThatEtcdHasIsNotUsedAgain) {
  const TempFolder folder;
  EXPECT_FALSE(retire_state_file(folder.path()).ok()) << "there is none";
  std::ofstream(own_state_file(folder.path())) << "state";
  ASSERT_TRUE(retire_state_file(folder.path()).ok());
  EXPECT_EQ(problem(folder, true), "");
  EXPECT_THAT(problem(folder, false), HasSubstr("/muster.db.in-etcd: the state of this"));
}

}  // namespace
}  // namespace muster::coordinator
