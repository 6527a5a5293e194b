// The lines of the audit log: their content, the limits of their number, and full disks.
#include "coordinator/shell/audit/audit_log.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/file_size_limit.h"
#include "tests/unit/temp_folder.h"

namespace muster::coordinator {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class AuditLogTest : public testing::Test {
 protected:
  std::unique_ptr<AuditLog> open(uint64_t bytes_max = 1 << 20, int files = 3) {
    auto log = std::make_unique<AuditLog>(
        AuditLogOptions{.path = path_, .bytes_max = bytes_max, .files = files}, metrics_);
    const absl::Status status = log->open();
    EXPECT_TRUE(status.ok()) << status;
    return log;
  }
  static std::vector<json> lines_of(const std::string& path) {
    std::vector<json> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
    return lines;
  }
  std::vector<json> lines() const { return lines_of(path_); }
  std::string lost() const {
    const std::string page = metrics_->render({});
    const size_t at = page.find("\nmuster_coordinator_audit_lost_total ");
    return at == std::string::npos ? "" : page.substr(at + 1, page.find('\n', at + 1) - at - 1);
  }

  TempFolder folder_;
  const std::string path_ = folder_.file("audit.jsonl");
  const std::shared_ptr<ShellMetrics> metrics_ = std::make_shared<ShellMetrics>();
};

TEST_F(AuditLogTest, ALineHasTheCallerAndTheResult) {
  auto log = open();
  log->add({.method = "CancelJob",
            .target = "job 7\x1b[2J",
            .caller = "alice",
            .role = "submitter",
            .token = "0a1b2c3d",
            .peer = "ipv4:10.0.0.5:4711",
            .status = absl::PermissionDeniedError("job 7 belongs to bob")});
  log.reset();
  ASSERT_EQ(lines().size(), 1U);
  json line = lines().front();
  EXPECT_THAT(line.at("time").get<std::string>(), HasSubstr("T"));
  line.erase("time");
  EXPECT_EQ(line, json({{"method", "CancelJob"},
                        {"target", "job 7\\x1b[2J"},
                        {"caller", "alice"},
                        {"role", "submitter"},
                        {"token", "0a1b2c3d"},
                        {"peer", "ipv4:10.0.0.5:4711"},
                        {"code", "PERMISSION_DENIED"},
                        {"message", "job 7 belongs to bob"}}));
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(AuditLogTest, OldFilesAreRenamedAndTheOldestIsRemoved) {
  auto log = open(/*bytes_max=*/1'000, /*files=*/3);
  for (int i = 0; i < 40; ++i) log->add({.method = "CancelJob", .target = absl::StrCat("job ", i)});
  log.reset();
  log = open(1'000, 3);
  log->add({.method = "CancelJob", .target = "job 40"});
  log.reset();
  std::vector<json> all;
  for (const char* suffix : {".2", ".1", ""}) {
    EXPECT_LE(std::filesystem::file_size(path_ + suffix), 1'000U);
    for (json& line : lines_of(path_ + suffix)) all.push_back(std::move(line));
  }
  EXPECT_FALSE(std::filesystem::exists(path_ + ".3"));
  ASSERT_GT(all.size(), 10U);
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(all[i].at("target"), absl::StrCat("job ", 41 - all.size() + i));
}

TEST_F(AuditLogTest, HalfALineOfAKilledCoordinatorIsRemoved) {
  std::ofstream(path_) << "{\"method\":\"CancelJob\"}\n{\"method\":\"Subm";
  auto log = open();
  log->add({.method = "UpdateJob"});
  log.reset();
  ASSERT_EQ(lines().size(), 2U);
  EXPECT_EQ(lines().back().at("method"), "UpdateJob");
}

TEST_F(AuditLogTest, FailedRequestsCannotDisplaceOtherLines) {
  auto log = open();
  for (int i = 0; i < 1'000; ++i) {
    log->add({.method = "GetJob",
              .token = absl::StrCat(i),
              .status = absl::UnauthenticatedError("no such token")});
    log->add({.method = "Login", .status = absl::InvalidArgumentError("token is missing")});
    log->add({.method = "CancelJob",
              .role = "submitter",
              .token = "b0b",
              .status = absl::PermissionDeniedError("job 1 belongs to alice")});
  }
  for (int i = 0; i < 100; ++i) log->add({.method = "CancelJob", .role = "admin", .token = "a"});
  log.reset();
  uint64_t skipped = 0;
  std::map<std::string, int> count;
  for (const json& line : lines()) {
    skipped += line.value("failed_before", uint64_t{0});
    ++count[line.at("role")];
  }
  EXPECT_LE(count[""], 30) << "more than three seconds' worth of unknown tokens";
  EXPECT_LE(count["submitter"], 30);
  EXPECT_GE(count["submitter"], 10) << "each known token has its own lines";
  EXPECT_EQ(count["admin"], 100) << "changes always have lines";
  EXPECT_EQ(skipped + lines().size(), 3'100U) << "each request is counted";
}

TEST_F(AuditLogTest, LinesThatAFullDiskRefusesAreCounted) {
  auto log = open();
  log->add({.method = "First"});
  log.reset();
  const auto bytes = std::filesystem::file_size(path_);
  log = open();
  {
    const FileSizeLimit no_space(bytes + 10);
    for (int i = 0; i < 20; ++i) log->add({.method = "CancelJob"});
    for (int i = 0; i < 400 && lost() != "muster_coordinator_audit_lost_total 20"; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(lost(), "muster_coordinator_audit_lost_total 20");
  log->add({.method = "Later"});
  log.reset();
  ASSERT_EQ(lines().size(), 2U) << "no part of a line remains";
  EXPECT_EQ(lines().back().at("method"), "Later");
  EXPECT_EQ(lines().back().at("lost_before"), 20);
}

TEST_F(AuditLogTest, ARemovedOrRenamedFileIsMadeAgain) {
  auto log = open();
  log->add({.method = "First"});
  log.reset();
  log = open();
  std::filesystem::rename(path_, path_ + ".moved");
  log->add({.method = "Second"});
  log.reset();
  ASSERT_EQ(lines().size(), 1U);
  EXPECT_EQ(lines().front().at("method"), "Second");
  EXPECT_EQ(lines_of(path_ + ".moved").size(), 1U);
}

TEST_F(AuditLogTest, OnlyAPlainFileIsOpened) {
  ASSERT_EQ(mkfifo(folder_.file("pipe").c_str(), 0600), 0);
  for (const std::string& path : {folder_.file("pipe"), std::string("/dev/null"), folder_.path()}) {
    AuditLog log({.path = path}, metrics_);
    const absl::Status status = log.open();
    EXPECT_EQ(status.message(), absl::StrCat("--audit-log: ", path, " is no plain file"));
  }
}

TEST_F(AuditLogTest, AFileThatCannotBeOpenedIsNamed) {
  AuditLog log({.path = folder_.file("none/audit.jsonl")}, metrics_);
  const absl::Status status = log.open();
  EXPECT_THAT(std::string(status.message()), HasSubstr("--audit-log: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("none/audit.jsonl"));
}

TEST(Audit, ReadsHaveLinesOnlyIfTheyAreRefused) {
  TempFolder folder;
  const std::string path = folder.file("audit.jsonl");
  auto log =
      std::make_shared<AuditLog>(AuditLogOptions{.path = path}, std::make_shared<ShellMetrics>());
  ASSERT_TRUE(log->open().ok());
  Audit(log, {.method = "FollowLogs"}, /*is_change=*/false).finish(absl::OkStatus());
  Audit(log, {.method = "FollowLogs"}, false).finish(absl::NotFoundError("there is no job 1"));
  Audit(log, {.method = "FollowLogs"}, false).finish(absl::PermissionDeniedError("another's"));
  Audit(log, {.method = "SubmitJob", .target = "a"}, true).finish(absl::OkStatus(), "job 1");
  Audit().finish(absl::OkStatus());
  log.reset();
  std::ifstream file(path);
  std::string first, second, third;
  std::getline(file, first);
  std::getline(file, second);
  EXPECT_FALSE(std::getline(file, third));
  EXPECT_EQ(json::parse(first).at("message"), "another's");
  EXPECT_EQ(json::parse(second).at("target"), "job 1");
}

}  // namespace
}  // namespace muster::coordinator
