#include "worker/stacks/kernel_messages.h"

#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>

#include "common/job/rank_evidence.h"
#include "tests/unit/mutate.h"
#include "tests/unit/temp_folder.h"

namespace muster::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<std::string> kRecords = {
    "6,1,1000000,-;old: Out of memory: Killed process 41 (python)",
    "6,2,5000000,-;usb 1-1: new high-speed device",
    "3,3,6000000,-;Out of memory: Killed process 1780 (python) total-vm:5588648kB, anon-rss:41kB\n "
    "SUBSYSTEM=x",
    "4,4,7000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=41, GPU has fallen off the bus.",
    "4,5,7500000,-;something about [41] and nothing else",
    "4,6,7600000,-;addresses 0x41 and 41kB and 410 and 1.41",
    "3,7,8000000,c;INFO: task muster-trainer:99 blocked for more than 120 seconds.\x1b[31m",
    "3,8,9000000,-;blk_update_request: I/O error, dev sda, sector 4100",
    "no record",
    "1,2;short",
    "1,2,-5,-;negative",
};

std::vector<std::string> texts(const std::vector<KernelMessage>& messages) {
  std::vector<std::string> result;
  for (const KernelMessage& message : messages) result.push_back(kernel_message_text(message));
  return result;
}

TEST(KernelMessagesTest, KeepsMessagesThatExplainADeath) {
  const std::vector<pid_t> pids = {41};
  const auto messages =
      relevant_kernel_messages(kRecords, {.pids = pids, .since = Instant(std::chrono::seconds(4))});
  EXPECT_THAT(
      texts(messages),
      ElementsAre(
          "[7.000000] NVRM: Xid (PCI:0000:3b:00): 79, pid=41, GPU has fallen off the bus.",
          "[7.500000] something about [41] and nothing else",
          "[8.000000] INFO: task muster-trainer:99 blocked for more than 120 seconds.\\x1b[31m",
          "[9.000000] blk_update_request: I/O error, dev sda, sector 4100"));
  EXPECT_FALSE(reports_oom_kill(messages, 41)) << "that was before";
  const std::vector<pid_t> killed = {1780};
  const auto of_killed = relevant_kernel_messages(kRecords, {.pids = killed, .since = Instant()});
  EXPECT_TRUE(reports_oom_kill(of_killed, 1780));
  EXPECT_FALSE(reports_oom_kill(of_killed, 178));
}

// Crashes long before the end and kills of processes that belong to no rank, and messages after the
// end.
TEST(KernelMessagesTest, OmitsOtherProcessesAndLaterMessages) {
  const std::vector<std::string> records = {
      "6,1,1000000,-;python3[500]: segfault at 0 ip 0 sp 0 error 4 in libc.so.6",
      "6,2,2000000,-;traps: chrome[501] general protection fault ip:0 sp:0 error:0",
      "6,3,23000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
      "oom_memcg=/jobs/7,task_memcg=/jobs/7/loader,task=python3,pid=502,uid=0",
      "3,4,23000001,-;Memory cgroup out of memory: Killed process 502 (python3) total-vm:1kB",
      "6,5,24000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
      "oom_memcg=/jobs/77,task_memcg=/jobs/77,task=python3,pid=503,uid=0",
      "3,6,24000001,-;Memory cgroup out of memory: Killed process 503 (python3) total-vm:1kB",
      "6,7,25000000,-;python3[41]: segfault at 8 ip 0 sp 0 error 4",
      "3,8,26000000,-;blk_update_request: I/O error, dev sda, sector 4100",
      "3,9,29000000,-;EXT4-fs error (device sda1): bad block"};
  const std::vector<pid_t> pids = {41};
  const std::vector<std::string> groups = {"/jobs/7", "/"};
  const auto messages =
      relevant_kernel_messages(records, {.pids = pids,
                                         .since = Instant(),
                                         .until = Instant(std::chrono::milliseconds(26500)),
                                         .groups = groups});
  EXPECT_THAT(texts(messages),
              ElementsAre(testing::StartsWith("[23.000000] oom-kill:"),
                          "[23.000001] Memory cgroup out of memory: Killed process 502 (python3) "
                          "total-vm:1kB",
                          "[25.000000] python3[41]: segfault at 8 ip 0 sp 0 error 4",
                          "[26.000000] blk_update_request: I/O error, dev sda, sector 4100"));
}

// A message has the id of the thread that crashed, and a data loader is a child of a rank.
TEST(KernelMessagesTest, ACrashShortlyBeforeTheEndMayBeOfAChild) {
  const std::vector<std::string> records = {
      "6,1,80000000,-;python3[500]: segfault at 0 ip 0 sp 0 error 4",
      "6,2,92000000,-;python3[501]: segfault at 0 ip 0 sp 0 error 4",
      "6,3,93000000,-;traps: python3[502] general protection fault ip:0 sp:0 error:0",
      "6,4,94000000,-;traps: python3[503] trap invalid opcode ip:0 sp:0 error:0",
      "3,5,95000000,-;Out of memory: Killed process 504 (python3) total-vm:1kB"};
  const std::vector<pid_t> pids = {41};
  const Instant since(std::chrono::seconds(1)), end(std::chrono::seconds(100));
  EXPECT_THAT(
      texts(relevant_kernel_messages(records, {.pids = pids, .since = since, .until = end})),
      ElementsAre("[92.000000] python3[501]: segfault at 0 ip 0 sp 0 error 4",
                  "[93.000000] traps: python3[502] general protection fault ip:0 sp:0 error:0",
                  "[94.000000] traps: python3[503] trap invalid opcode ip:0 sp:0 error:0"));
  EXPECT_THAT(relevant_kernel_messages(records, {.pids = pids, .since = since}), IsEmpty())
      << "the rank has not ended";
}

TEST(KernelMessagesTest, TheClockOfTheLogMayDriftWithTheUptime) {
  // 10 days are 864,000 s: the clocks may differ by 2 s and 172.8 s.
  const Instant end(std::chrono::seconds(864'000));
  const std::vector<std::string> records = {
      "3,1,863820000000,-;I/O error 1", "3,2,863830000000,-;I/O error 2",
      "3,3,864174000000,-;I/O error 3", "3,4,864180000000,-;I/O error 4"};
  EXPECT_THAT(texts(relevant_kernel_messages(records, {.pids = {}, .since = end, .until = end})),
              ElementsAre("[863830.000000] I/O error 2", "[864174.000000] I/O error 3"));
}

TEST(KernelMessagesTest, APidAfterLongControlGroupsIsFound) {
  const std::string group = "/jobs/" + std::string(300, 'g');
  const std::vector<std::string> records = {
      "6,1,1000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=" + group +
          ",task_memcg=" + group + "/loader,task=python3,pid=502,uid=0",
      "3,2,1000001,-;Memory cgroup out of memory: Killed process 502 (python3) total-vm:1kB"};
  const std::vector<std::string> groups = {group};
  const auto messages =
      relevant_kernel_messages(records, {.pids = {}, .since = Instant(), .groups = groups});
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[0].text.size(), kEvidenceLineBytesMax);
}

TEST(KernelMessagesTest, ForeignPidsSelectNoMessages) {
  const std::vector<std::string> records = {
      "6,1,1000000,-;python3[500]: segfault at 0 ip 0 sp 0 error 4",
      "3,2,2000000,-;Memory cgroup out of memory: Killed process 502 (python3) total-vm:1kB",
      "4,3,3000000,-;something about [41] and nothing else"};
  const std::vector<pid_t> pids = {41};
  EXPECT_THAT(
      texts(relevant_kernel_messages(records,
                                     {.pids = pids, .since = Instant(), .foreign_pids = true})),
      ElementsAre(
          "[1.000000] python3[500]: segfault at 0 ip 0 sp 0 error 4",
          "[2.000000] Memory cgroup out of memory: Killed process 502 (python3) total-vm:1kB"));

  const TempFolder proc;
  EXPECT_FALSE(has_foreign_pids(proc.path())) << "unknown";
  std::filesystem::create_directories(proc.file("self/ns"));
  std::filesystem::create_symlink("pid:[4026531836]", proc.file("self/ns/pid"));
  EXPECT_FALSE(has_foreign_pids(proc.path())) << "the kernel's first namespace";
  std::filesystem::remove(proc.file("self/ns/pid"));
  std::filesystem::create_symlink("pid:[4026532201]", proc.file("self/ns/pid"));
  EXPECT_TRUE(has_foreign_pids(proc.path()));
}

TEST(KernelMessagesTest, TheNewestAreKept) {
  std::vector<std::string> records;
  for (int i = 0; i < 500; ++i)
    records.push_back("3," + std::to_string(i) + "," + std::to_string(i) + ",-;I/O error " +
                      std::to_string(i));
  const auto messages = relevant_kernel_messages(records, {.pids = {}, .since = Instant()});
  ASSERT_EQ(messages.size(), kKernelMessagesMax);
  EXPECT_EQ(messages.back().text, "I/O error 499");
}

TEST(KernelMessagesTest, AnyTextIsBoundedAndPrintable) {
  Mutator mutator(1);
  for (int i = 0; i < 2000; ++i) {
    const std::vector<std::string> records = {mutator.mutate(kRecords[2])};
    for (const KernelMessage& message :
         relevant_kernel_messages(records, {.pids = {}, .since = Instant()})) {
      EXPECT_LE(message.text.size(), kEvidenceLineBytesMax);
      EXPECT_EQ(message.text.find('\n'), std::string::npos);
    }
  }
}

TEST(KernelMessagesTest, ALogThatCannotBeReadIsEmpty) {
  const TempFolder folder;
  EXPECT_THAT(read_kernel_messages(folder.file("none"), {.pids = {}, .since = Instant()}),
              IsEmpty());
  EXPECT_THAT(read_kernel_messages(folder.path(), {.pids = {}, .since = Instant()}), IsEmpty());
  // The real log, if permitted: the read ends, and its result is bounded.
  EXPECT_LE(read_kernel_messages("/dev/kmsg", {.pids = {}, .since = Instant()}).size(),
            kKernelMessagesMax);
}

}  // namespace
}  // namespace muster::worker
