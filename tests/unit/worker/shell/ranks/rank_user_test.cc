// Ranks of other users. The users `daemon` and `games` exist on every Debian system.
#include "worker/shell/ranks/rank_user.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <thread>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "common/files/errno_status.h"
#include "tests/unit/temp_folder.h"
#include "worker/shell/ranks/launcher.h"
#include "worker/shell/ranks/node_fault.h"
#include "worker/shell/ranks/spawn.h"

namespace muster::worker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class RankUserTest : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    auto found = find_rank_user("daemon", false);
    if (!found.ok()) GTEST_SKIP() << found.status();
    user_ = *std::move(found);
    ASSERT_EQ(chmod(folder_.path().c_str(), 0711), 0);
    ASSERT_TRUE(make_folder_of(user_.ids, own_, 0700).ok());
  }

  SpawnRequest request(std::vector<std::string> arguments) const {
    return {.arguments = std::move(arguments),
            .environment = {"PATH=/usr/bin:/bin"},
            .directory = own_,
            .log_path = own_ + "/rank-0.log",
            .user = user_.ids};
  }

  // Returns the output of a shell's script that runs as the user.
  std::string output_of(const std::string& script) const {
    const SpawnRequest wanted = request({"/bin/sh", "-c", script});
    const auto pid = spawn(wanted);
    EXPECT_TRUE(pid.ok()) << pid.status();
    int status = 0;
    EXPECT_EQ(waitpid(*pid, &status, 0), *pid);
    EXPECT_EQ(status, 0);
    return read_file(wanted.log_path);
  }

  const TempFolder folder_;
  const std::string own_ = folder_.file("own");
  RankUser user_;
};

TEST(FindRankUser, UnknownUsersRootAndJobsWithoutOwnersAreRefused) {
  const absl::Status none = find_rank_user("", false).status();
  EXPECT_THAT(std::string(none.message()), HasSubstr("submit it with a token that names its user"));
  EXPECT_FALSE(is_node_fault(none));
  for (const std::string& name : {std::string("no-such-user\x1b"), std::string("daemon\0x", 8)}) {
    const absl::Status unknown = find_rank_user(name, false).status();
    EXPECT_THAT(std::string(unknown.message()), HasSubstr("is no user of this node"));
    EXPECT_EQ(unknown.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_FALSE(is_node_fault(unknown)) << "the owner must not exclude nodes";
  }
  const absl::Status root = find_rank_user("root", false).status();
  EXPECT_THAT(std::string(root.message()), HasSubstr("--run-root-jobs"));
  EXPECT_TRUE(find_rank_user("root", true).ok());
}

TEST_F(RankUserTest, AFolderBelongsToTheUserAlone) {
  const std::string path = folder_.file("7");
  ASSERT_TRUE(make_folder_of(user_.ids, path, 0700).ok());
  write_file(path + "/file", "theirs");
  ASSERT_TRUE(make_folder_of(user_.ids, path, 0700).ok()) << "a second rank";
  EXPECT_EQ(read_file(path + "/file"), "theirs");
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, user_.ids.uid);
  EXPECT_EQ(info.st_mode & 0777, 0700U);

  // Folders of another owner and of root, and a link, are put aside.
  ASSERT_EQ(chown(path.c_str(), user_.ids.uid + 1, user_.ids.gid), 0);
  ASSERT_TRUE(make_folder_of(user_.ids, path, 0700).ok());
  EXPECT_EQ(read_file(absl::StrCat(path, ".of-", user_.ids.uid + 1, "-1/file")), "theirs");
  EXPECT_TRUE(std::filesystem::is_empty(path));
  ASSERT_EQ(chown(path.c_str(), 0, 0), 0);
  ASSERT_TRUE(make_folder_of(user_.ids, path, 0700).ok());
  EXPECT_TRUE(std::filesystem::is_directory(path + ".of-0-1"));
  std::filesystem::remove(path);
  std::filesystem::create_directory_symlink(folder_.path(), path);
  ASSERT_TRUE(make_folder_of(user_.ids, path, 0700).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(path + ".of-0-2"));
  EXPECT_FALSE(std::filesystem::is_symlink(path));
  ASSERT_EQ(stat(folder_.path().c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 0U);
}

TEST_F(RankUserTest, AProcessRunsAsTheUserInItsGroups) {
  user_.ids.groups.push_back(12345);
  const std::string log = output_of(
      "id -u; id -g; id -G; cat /etc/shadow; touch inside; ls /proc/self/fd | wc -l; "
      "cut -d ' ' -f 6 /proc/$$/stat; echo $$");
  EXPECT_THAT(log, StartsWith(absl::StrCat(user_.ids.uid, "\n", user_.ids.gid, "\n")));
  EXPECT_THAT(log, HasSubstr(" 12345\n"));
  EXPECT_THAT(log, HasSubstr("Permission denied"));
  EXPECT_THAT(log, Not(HasSubstr("root:")));
  // 0, 1, 2 and that of ls; the process leads its session, without the worker's terminal.
  EXPECT_THAT(log, testing::ContainsRegex("\n4\n([0-9]+)\n"));
  const size_t last = log.rfind('\n', log.size() - 2);
  const size_t before = log.rfind('\n', last - 1);
  EXPECT_EQ(log.substr(before + 1, last - before - 1), log.substr(last + 1, log.size() - last - 2));
  struct stat info {};
  for (const std::string& path : {own_ + "/rank-0.log", own_ + "/inside"}) {
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_uid, user_.ids.uid);
  }
}

// A service manager may give the worker inheritable and ambient capabilities, and flags that make
// capabilities survive a change of the user.
TEST_F(RankUserTest, NoCapabilitiesAreLeft) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> former{};
  ASSERT_EQ(syscall(SYS_capget, &header, former.data()), 0);
  auto all = former;
  for (auto& word : all) word.inheritable = word.permitted;
  ASSERT_EQ(syscall(SYS_capset, &header, all.data()), 0);
  ASSERT_EQ(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_KILL, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_KEEPCAPS, 1), 0);
  const std::string log = output_of("grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status");
  prctl(PR_SET_KEEPCAPS, 0);
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  ASSERT_EQ(syscall(SYS_capset, &header, former.data()), 0);
  EXPECT_EQ(log,
            "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"
            "CapAmb:\t0000000000000000\n");
}

TEST_F(RankUserTest, TheKeysOfTheWorkersSessionAreNotInherited) {
  if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) < 0)
    GTEST_SKIP() << "no keys: errno " << errno;
  ASSERT_GT(syscall(SYS_add_key, "user", "muster-secret", "secret", 6, KEY_SPEC_SESSION_KEYRING),
            0);
  EXPECT_THAT(read_file("/proc/keys"), HasSubstr("muster-secret"));
  EXPECT_THAT(output_of("cat /proc/keys"), Not(HasSubstr("muster-secret")));
}

TEST_F(RankUserTest, ALinkInPlaceOfALogLeadsNowhere) {
  const std::string secret = folder_.file("secret");
  write_file(secret, "secret");
  SpawnRequest wanted = request({"/bin/true"});
  std::filesystem::create_symlink(secret, wanted.log_path);
  EXPECT_FALSE(open_log(wanted).ok());
  EXPECT_FALSE(is_node_fault(open_log(wanted).status())) << "users must not exclude nodes";
  std::filesystem::remove(wanted.log_path);
  std::filesystem::create_hard_link(secret, wanted.log_path);
  EXPECT_FALSE(open_log(wanted).ok());
  std::filesystem::remove(wanted.log_path);
  ASSERT_EQ(mkfifo(wanted.log_path.c_str(), 0600), 0);
  EXPECT_FALSE(open_log(wanted).ok()) << "does not wait for a reader";
  EXPECT_FALSE(is_node_fault(open_log(wanted).status()));
  EXPECT_EQ(read_file(secret), "secret");
}

TEST(NodeFault, TheQuotaOfAUserIsNotTheNodes) {
  const absl::Status quota =
      node_fault_unless_users(errno_status(EDQUOT, "cannot write config.json"));
  EXPECT_FALSE(is_node_fault(quota));
  EXPECT_EQ(quota.message(), "cannot write config.json: the job's owner has used up a quota");
  EXPECT_FALSE(is_node_fault(node_fault_unless_quota(errno_status(EDQUOT, "creating folder 7"))));
  EXPECT_TRUE(is_node_fault(node_fault_unless_users(errno_status(ENOSPC, "x")))) << "a full disk";
  EXPECT_TRUE(is_node_fault(node_fault_unless_users(errno_status(EIO, "x"))));
  EXPECT_TRUE(is_node_fault(node_fault_unless_quota(errno_status(ENOENT, "x"))));
}

TEST_F(RankUserTest, ALeaseOnALogIsNotTheNodesFault) {
  const SpawnRequest wanted = request({"/bin/true"});
  const int fd = open(wanted.log_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  const absl::Cleanup close_file = [fd] { close(fd); };
  ASSERT_EQ(fchown(fd, user_.ids.uid, user_.ids.gid), 0);
  if (fcntl(fd, F_SETLEASE, F_WRLCK) != 0) GTEST_SKIP() << "no leases here: errno " << errno;
  const auto former = ::signal(SIGIO, SIG_IGN);  // requests the lease
  const absl::Status status = open_log(wanted).status();
  ::signal(SIGIO, former);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_FALSE(is_node_fault(status));
}

TEST_F(RankUserTest, AFolderThatTheUserCannotEnterIsNotTheNodesFault) {
  SpawnRequest wanted = request({"/bin/true"});
  wanted.directory = folder_.file("private");
  std::filesystem::create_directory(wanted.directory);
  ASSERT_EQ(chmod(wanted.directory.c_str(), 0700), 0);
  const absl::Status status = spawn(wanted).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("entering the working directory"));
  EXPECT_FALSE(is_node_fault(status));
}

TEST_F(RankUserTest, ItDiesWithItsParentThread) {
  // The kernel clears the request at a change of the user, so it must follow that change.
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const auto pid = spawn(request({"/bin/sleep", "600"}));
    const pid_t started = pid.ok() ? *pid : -1;
    if (write(ends[1], &started, sizeof(started)) != sizeof(started)) _exit(1);
    _exit(0);
  }
  pid_t child = -1;
  ASSERT_EQ(read(ends[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  ASSERT_EQ(waitpid(parent, nullptr, 0), parent);
  close(ends[0]);
  close(ends[1]);
  ASSERT_GT(child, 0);
  bool is_gone = false;
  for (int i = 0; i < 2000 && !is_gone; ++i) {
    is_gone = kill(child, 0) != 0 ||
              read_file(absl::StrCat("/proc/", child, "/stat")).find(") Z ") != std::string::npos;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(is_gone);
}

TEST_F(RankUserTest, TheLauncherGivesARankItsUsersFolderAndVariables) {
  const std::string work = folder_.file("work");
  std::filesystem::create_directory(work);
  ASSERT_EQ(chmod(work.c_str(), 0711), 0);
  const Launcher launcher({.work_dir = work,
                           .trainer = "/bin/true",
                           .bind_address = "127.0.0.1",
                           .incarnation = Incarnation(5),
                           .pass_env = {"PASSED"},
                           .run_as_owner = true},
                          {"PATH=/usr/bin:/bin", "HOME=/root", "SSH_AUTH_SOCK=/x", "PASSED=yes"});
  auto launch = std::make_shared<Launch>();
  launch->job = JobId(7);
  launch->attempt = Attempt(2);
  launch->rendezvous_address = "127.0.0.1:4242";
  launch->program_port = 12'345;
  launch->spec.nodes = 1;
  launch->spec.ranks_per_node = 2;
  launch->spec.owner = user_.name;
  launch->spec.command = {"/bin/true"};
  launch->spec.working_directory = "/";
  launch->spec.train_config_json = "{}";
  // A folder of an earlier job of root with the same number.
  std::filesystem::create_directories(work + "/7/2");
  write_file(work + "/7/2/result", "root's");
  std::array<absl::StatusOr<SpawnRequest>, 2> prepared{absl::UnknownError(""),
                                                       absl::UnknownError("")};
  std::array<std::thread, 2> ranks;
  for (int32_t r = 0; r < 2; ++r)
    ranks.at(static_cast<size_t>(r)) = std::thread([&, r] {
      prepared.at(static_cast<size_t>(r)) =
          launcher.prepare({{launch->job, launch->attempt, Rank(r)}, r, launch});
    });
  for (std::thread& rank : ranks) rank.join();
  for (const auto& one : prepared) {
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_EQ(one->user, user_.ids);
    EXPECT_THAT(one->environment, Contains("HOME=" + user_.home));
    EXPECT_THAT(one->environment, Contains("USER=daemon"));
    EXPECT_THAT(one->environment, Contains("PASSED=yes"));
    EXPECT_THAT(one->environment, Not(Contains(StartsWith("SSH_AUTH_SOCK"))));
  }
  struct stat info {};
  ASSERT_EQ(stat((work + "/7").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 0U);
  EXPECT_EQ(info.st_mode & 0777, 0711U);
  for (const char* path : {"/7/2", "/7/2/config.json"}) {
    ASSERT_EQ(stat((work + path).c_str(), &info), 0);
    EXPECT_EQ(info.st_uid, user_.ids.uid) << path;
  }
  ASSERT_EQ(stat((work + "/7/2").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
  EXPECT_EQ(read_file(work + "/7/2.of-0-1/result"), "root's");

  // A program that only root can execute, and the worker's own files.
  const std::string program = folder_.file("program");
  write_file(program, "#!/bin/sh\n");
  ASSERT_EQ(chmod(program.c_str(), 0700), 0);
  launch->spec.command = {program};
  const auto refused = launcher.prepare({{launch->job, launch->attempt, Rank(0)}, 0, launch});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kPermissionDenied) << refused.status();
}

TEST_F(RankUserTest, AWorkerWhoseFilesUsersCanReachIsRefused) {
  const std::string work = folder_.file("work"), token = folder_.file("token");
  std::filesystem::create_directory(work);
  ASSERT_EQ(chmod(work.c_str(), 0700), 0);
  write_file(token, "secret");
  const auto problem = [&](bool is_secret = true) {
    return std::string(
        admit_users(work, {{"--token-file", token, is_secret}, {"--tls-key", "", true}}).message());
  };
  ASSERT_EQ(chmod(token.c_str(), 0600), 0);
  EXPECT_EQ(problem(), "");
  struct stat info {};
  ASSERT_EQ(stat(work.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0711U) << "users can pass";
  ASSERT_EQ(chmod(token.c_str(), 0640), 0);
  EXPECT_THAT(problem(), HasSubstr("--token-file=" + token +
                                   " (with --run-as-owner): ranks of other users could read it"));
  EXPECT_EQ(problem(/*is_secret=*/false), "");
  ASSERT_EQ(chown(token.c_str(), user_.ids.uid, 0), 0);
  EXPECT_THAT(problem(/*is_secret=*/false), HasSubstr("belongs to the user 1"));
  ASSERT_EQ(chown(token.c_str(), 0, 0), 0);
  ASSERT_EQ(chmod(token.c_str(), 0600), 0);
  ASSERT_EQ(chmod(work.c_str(), 0777), 0);
  EXPECT_THAT(problem(), HasSubstr("other users may write to " + work));
  ASSERT_EQ(chmod(work.c_str(), 0711), 0);
  ASSERT_EQ(chmod(folder_.path().c_str(), 0700), 0);
  EXPECT_THAT(problem(), HasSubstr("users cannot pass the folder " + folder_.path()));
}

TEST_F(RankUserTest, ProgramsThatTheWorkerExecutesAreChecked) {
  const std::string work = folder_.file("work"), programs = folder_.file("programs");
  const std::string trainer = programs + "/muster-trainer";
  std::filesystem::create_directories(work);
  std::filesystem::create_directory(programs);
  write_file(trainer, "#!/bin/sh\n");
  ASSERT_EQ(chmod(trainer.c_str(), 0755), 0);
  // Without the programs of this test's own machine.
  const auto problem = [&](const std::string& flag) {
    std::vector<FlaggedFile> files = files_of_worker({}, trainer, trainer);
    std::erase_if(files, [&](const FlaggedFile& file) { return file.flag != flag; });
    EXPECT_EQ(files.size(), 1U) << flag;
    return std::string(admit_users(work, files).message());
  };
  for (const char* flag : {"--trainer", "the program of node checks"}) {
    ASSERT_EQ(chmod(programs.c_str(), 0755), 0);
    EXPECT_EQ(problem(flag), "");
    ASSERT_EQ(chmod(programs.c_str(), 0775), 0);
    EXPECT_EQ(problem(flag), absl::StrCat(flag, "=", trainer, " (with --run-as-owner): ",
                                          "other users may write to ", programs, ": chmod go-w"));
  }
  const std::string own = std::filesystem::read_symlink("/proc/self/exe");
  EXPECT_THAT(files_of_worker({}, trainer, trainer),
              Contains(testing::Field(&FlaggedFile::path, own)));
}

}  // namespace
}  // namespace muster::worker
