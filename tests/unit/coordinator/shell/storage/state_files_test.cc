#include "coordinator/shell/storage/state_files.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "coordinator/shell/storage/sqlite_database.h"
#include "coordinator/shell/storage/sqlite_storage.h"
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

constexpr char kOneJob[] = "CREATE TABLE jobs(id INTEGER PRIMARY KEY); INSERT INTO jobs VALUES(7)";

int64_t job_in(const std::string& file) {
  return SqliteDatabase::open(file)->one_number("SELECT id FROM jobs").value_or(0);
}

TEST(StateFiles, AStateThatEtcdHasIsNotUsedAgain) {
  const TempFolder folder;
  EXPECT_TRUE(absl::IsNotFound(StateMove::begin(folder.path()).status()));
  EXPECT_EQ(earlier_state_in_etcd(folder.path()), "");
  ASSERT_TRUE(SqliteDatabase::open(own_state_file(folder.path()))->run(kOneJob).ok());
  const auto move = StateMove::begin(folder.path());
  ASSERT_TRUE(move.ok()) << move.status();
  EXPECT_FALSE(move->continues());
  EXPECT_EQ(problem(folder, true), "");
  EXPECT_THAT(problem(folder, false), HasSubstr("/muster.db.in-etcd: the state of this"));
  EXPECT_EQ(earlier_state_in_etcd(folder.path()), move->file());

  // This process has ended before etcd had the state.
  const auto next = StateMove::begin(folder.path());
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(next->continues());
  EXPECT_EQ(next->file(), move->file());
  ASSERT_TRUE(next->revert().ok());
  EXPECT_EQ(problem(folder, false), "");

  // A second state replaces no earlier one.
  std::ofstream(move->file()) << "an earlier state";
  const absl::Status both = StateMove::begin(folder.path()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(both)) << both;
  EXPECT_THAT(std::string(both.message()), HasSubstr("move the one away that is not needed"));
  EXPECT_EQ(read_file(move->file()), "an earlier state");
  EXPECT_EQ(job_in(own_state_file(folder.path())), 7);
  EXPECT_THAT(problem(folder, true), HasSubstr("/muster.db is the state of a coordinator"));
}

TEST(StateFiles, AMoveTakesTheWriteAheadLogOfAKilledCoordinator) {
  const TempFolder folder, copy;
  {
    auto db = SqliteDatabase::open(own_state_file(folder.path()));
    ASSERT_TRUE(db->run("PRAGMA journal_mode=WAL").ok());
    ASSERT_TRUE(db->run(kOneJob).ok());
    std::filesystem::copy(folder.path(), copy.path());
  }
  ASSERT_GT(std::filesystem::file_size(own_state_file(copy.path()) + "-wal"), 0U);
  const auto move = StateMove::begin(copy.path());
  ASSERT_TRUE(move.ok()) << move.status();
  EXPECT_EQ(job_in(move->file()), 7);
}

TEST(StateFiles, ACopyLeavesEtcdWithItsWriteAheadLog) {
  const TempFolder folder, copy;
  EXPECT_TRUE(absl::IsNotFound(leave_etcd(folder.path()).status()));
  {
    auto storage = open_sqlite_storage(mirror_file(folder.path()));
    ASSERT_TRUE(storage.ok());
    for (int i = 0; i < 4; ++i) ASSERT_TRUE((*storage)->begin_epoch().ok());
    std::filesystem::copy(folder.path(), copy.path());  // as after kill -9
  }
  // A rename by hand would lose the log.
  const std::string mirror = mirror_file(copy.path());
  ASSERT_GT(std::filesystem::file_size(mirror + "-wal"), 0U);
  std::filesystem::rename(mirror, own_state_file(copy.path()));
  EXPECT_THAT(problem(copy, false), HasSubstr("etcd-mirror.db-wal has a part of the state"));
  std::filesystem::rename(own_state_file(copy.path()), mirror);

  std::ofstream(own_state_file(copy.path()) + ".in-etcd") << "the state before etcd";
  std::ofstream(own_state_file(copy.path())) << "another state";
  EXPECT_TRUE(absl::IsFailedPrecondition(leave_etcd(copy.path()).status()));
  std::filesystem::remove(own_state_file(copy.path()));
  EXPECT_EQ(leave_etcd(copy.path()).value(), Epoch(4));
  EXPECT_EQ(problem(copy, false), "");
  auto storage = open_sqlite_storage(own_state_file(copy.path()));
  ASSERT_TRUE(storage.ok()) << storage.status();
  EXPECT_EQ((*storage)->load()->left_at, Epoch(4));
  EXPECT_EQ((*storage)->begin_epoch().value(), Epoch(5));
}

TEST(StateFiles, ADamagedCopyDoesNotLeaveEtcd) {
  const TempFolder folder;
  std::ofstream(mirror_file(folder.path())) << std::string(8192, 'x');
  EXPECT_FALSE(leave_etcd(folder.path()).ok());
  EXPECT_TRUE(std::filesystem::exists(mirror_file(folder.path())));
}

TEST(StateFiles, ADamagedStateKeepsItsName) {
  const TempFolder folder;
  std::ofstream(own_state_file(folder.path())) << std::string(8192, 'x');
  EXPECT_FALSE(StateMove::begin(folder.path()).ok());
  EXPECT_TRUE(std::filesystem::exists(own_state_file(folder.path())));
}

}  // namespace
}  // namespace muster::coordinator
