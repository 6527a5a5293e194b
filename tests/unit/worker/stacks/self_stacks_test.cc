// Stacks of processes that may not be traced.
#include "common/stacks/self_stacks.h"

#include <gmock/gmock.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cstddef>
#include <fstream>
#include <thread>

#include "tests/unit/mutate.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/worker/stacks/subject.h"
#include "worker/stacks/self_copies.h"

namespace muster::worker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

// Forbids tracing for this thread and its future threads, as container profiles and hardened
// kernels do.
void forbid_tracing() {
  constexpr auto kAllow = static_cast<uint32_t>(SECCOMP_RET_ALLOW);
  constexpr auto kRefuse = static_cast<uint32_t>(SECCOMP_RET_ERRNO) | EPERM;
  std::array<sock_filter, 5> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, kAllow),
      BPF_STMT(BPF_RET | BPF_K, kRefuse),
  }};
  const sock_fprog filter{.len = program.size(), .filter = program.data()};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0) << strerror(errno);
}

// A process with more capabilities than its watcher may not be inspected; signals of its own user
// reach it.
void drop_capabilities() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> none{};
  ASSERT_EQ(syscall(SYS_capset, &header, none.data()), 0) << strerror(errno);
}

// A thread's restrictions end with it.
StackSample sample_restricted(void (*restrict)(), const StackTarget& target) {
  StackSample sample;
  std::thread([&] {
    restrict();
    StackSampler sampler;
    sample = sampler.sample({&target, 1}, in_seconds(30));
  }).join();
  return sample;
}

class SelfStacksTest : public ::testing::Test {
 protected:
  const TempFolder folder_;
  const std::string path_ = folder_.file("progress.0.stacks");
  const Subject subject_{"self", subject_program("stack_subject_self"), path_};
  const StackTarget target_{.rank = 3, .pid = subject_.pid(), .pidfd = -1, .self_stacks = path_};

  void expect_complete(const StackSample& sample) {
    ASSERT_EQ(sample.ranks.size(), 1);
    const RankStacks& stacks = sample.ranks[0];
    EXPECT_EQ(stacks.problem, "");
    EXPECT_THAT(stacks.note, StartsWith("ptrace is not permitted"));
    EXPECT_THAT(stacks.note, HasSubstr("reported on a signal"));
    const ThreadStack* main = find_thread(stacks, "main");
    ASSERT_NE(main, nullptr);
    EXPECT_FALSE(main->truncated);
    EXPECT_THAT(functions_of(sample, *main, subject_.pid()),
                IsSupersetOf({"main", "subject::outermost()", "subject::middle()",
                              "subject::innermost()", "subject::wait_forever()"}));
    EXPECT_EQ(symbols_of(sample, *main, subject_.pid()).back().function.empty(), false);
    const ThreadStack* sleeper = find_thread(stacks, "sleeper");
    ASSERT_NE(sleeper, nullptr);
    EXPECT_THAT(functions_of(sample, *sleeper, subject_.pid()), Contains("subject::sleep_long()"));
    const ThreadStack* spinner = find_thread(stacks, "spinner");
    ASSERT_NE(spinner, nullptr);
    EXPECT_THAT(functions_of(sample, *spinner, subject_.pid()),
                Contains(HasSubstr("subject::spin()")));
    // A thread that has not registered is not signalled: the signal would not end it, but its stack
    // pointer may hold anything.
    const ThreadStack* silent = find_thread(stacks, "silent");
    ASSERT_NE(silent, nullptr);
    EXPECT_THAT(silent->frames.back().text, StartsWith("[kernel] "));
    EXPECT_THAT(functions_of(sample, *silent, subject_.pid()),
                Not(Contains("subject::sleep_long()")));
  }
};

TEST_F(SelfStacksTest, ThreadsOfferTheirStacksWhereTracingIsForbidden) {
  expect_complete(sample_restricted(&forbid_tracing, target_));
  expect_complete(sample_restricted(&forbid_tracing, target_));  // and continue as before
}

TEST_F(SelfStacksTest, TracingComesFirst) {
  StackSampler sampler;
  const StackSample sample = sampler.sample({&target_, 1}, in_seconds(30));
  EXPECT_EQ(sample.ranks[0].note, "");
  EXPECT_GT(find_thread(sample.ranks[0], "silent")->frames.size(), 1);
}

TEST_F(SelfStacksTest, TheProcessProvidesItsMapIfItMayNotBeRead) {
  if (geteuid() != 0) GTEST_SKIP() << "this user has no capabilities to be without";
  const StackSample sample = sample_restricted(&drop_capabilities, target_);
  ASSERT_EQ(sample.ranks.size(), 1);
  EXPECT_EQ(sample.ranks[0].problem, "");
  const ThreadStack* main = find_thread(sample.ranks[0], "main");
  ASSERT_NE(main, nullptr);
  EXPECT_THAT(functions_of(sample, *main, subject_.pid()), Contains("subject::middle()"));
}

TEST_F(SelfStacksTest, AStoppedProcessGetsNoRequest) {
  subject_.kill(SIGSTOP);
  ASSERT_TRUE(eventually([&] { return subject_.state() == 'T'; }));
  StackTarget target = target_;
  const StackSample sample = sample_restricted(&forbid_tracing, target);
  const ThreadStack* main = find_thread(sample.ranks[0], "main");
  ASSERT_NE(main, nullptr);
  EXPECT_EQ(main->state, 'T');
  EXPECT_THAT(functions_of(sample, *main, subject_.pid()), Not(Contains("main")));
  EXPECT_EQ(subject_.state(), 'T');
}

// Foreign programs do not register, and an unhandled signal would end them.
TEST_F(SelfStacksTest, OtherProcessesAreDescribedByKernelData) {
  const Subject other("many");
  const StackTarget target{
      .rank = 1, .pid = other.pid(), .pidfd = -1, .self_stacks = path_};  // not its own
  const StackSample sample = sample_restricted(&forbid_tracing, target);
  EXPECT_EQ(sample.ranks[0].problem, "");
  EXPECT_THAT(sample.ranks[0].note, HasSubstr("only kernel data is available"));
  ASSERT_EQ(sample.ranks[0].threads.size(), 21);
  EXPECT_THAT(sample.ranks[0].threads[0].frames.back().text, StartsWith("[kernel] "));
  EXPECT_TRUE(eventually([&] { return other.state() == 'S'; }));
}

// The file belongs to the rank, and may hold anything.
TEST_F(SelfStacksTest, DamagedFilesAreHarmless) {
  const std::vector<pid_t> tids = read_thread_ids("/proc", subject_.pid(), 512);
  const auto whole = request_copies("/proc", path_, subject_.pid(), tids, 7, true, in_seconds(30));
  ASSERT_TRUE(whole.has_value());
  ASSERT_TRUE(whole->map.has_value());
  std::string good(5 * kSelfSlotBytes, '\0');  // content of the file, which ends with the map
  std::ifstream(path_, std::ios::binary).read(good.data(), std::ssize(good));
  Mutator mutator(1);
  for (int i = 0; i < 50; ++i) {
    const std::string damaged = folder_.file("damaged");
    std::string bytes = good;
    const std::string head = mutator.mutate(bytes.substr(0, sizeof(SelfStacksHeader)));
    std::string slot = mutator.mutate(bytes.substr(kSelfSlotBytes, sizeof(SelfStackRecord)));
    slot.resize(sizeof(SelfStackRecord));
    if (i % 2 == 0) bytes.replace(0, sizeof(SelfStacksHeader), head);
    bytes.replace(kSelfSlotBytes, slot.size(), slot);
    write_file(damaged, bytes);
    // Uses an earlier request, so that all answers are there at once.
    const auto read = request_copies("/proc", damaged, subject_.pid(), tids, 7, false,
                                     monotonic_now() + std::chrono::milliseconds(5));
    if (!read) continue;
    ASSERT_EQ(read->copies.size(), tids.size());
    for (const ThreadCopy& copy : read->copies) EXPECT_LE(copy.stack.size(), kSelfStackBytesMax);
  }
  EXPECT_TRUE(eventually([&] { return subject_.state() == 'S'; }));
}

}  // namespace
}  // namespace muster::worker
