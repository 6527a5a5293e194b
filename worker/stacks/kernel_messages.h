// Finds lines of the kernel's log that explain why a rank died or waits: out-of-memory kills, GPU
// errors (Xid), failing disks and file systems, hung tasks, and lines that name a process of our
// ranks. A kill of another process explains nothing, unless that process is in the control group of
// a rank. Nor does a crash of another process, unless it shortly precedes the end of a rank: it may
// be a thread or a child of the rank. Reads /dev/kmsg, which requires root or CAP_SYSLOG.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/rank_evidence.h"
#include "common/time/time.h"

namespace muster::worker {

constexpr const char* kKernelLog = "/dev/kmsg";
// Older messages are unrelated to a rank that hangs or has died now.
constexpr Duration kKernelMessagesAge = std::chrono::minutes(10);

// One line of the kernel's log.
struct KernelMessage {
  // the kernel's timestamp; differs from CLOCK_MONOTONIC by kernel_clock_error() at most, unless
  // the machine was suspended
  Instant at;
  std::string text;  // printable text without the facility
};

// The processes and the time to search for.
struct KernelMessageQuery {
  std::span<const pid_t> pids;  // pids of the ranks' processes
  Instant since;
  Instant until = Instant::max();  // the end of the ranks; the maximum: they have not ended
  // The control groups of the ranks, "/jobs/7": processes in them, such as loaders of data, belong
  // to the ranks. The root group does not count.
  std::span<const std::string> groups{};
  // has_foreign_pids(): messages are not selected by pid
  bool foreign_pids = false;
};

// Returns the maximum difference between CLOCK_MONOTONIC and the kernel's timestamp `at`: unlike
// the former, the clock of the log is not corrected by NTP, so the difference grows with the
// uptime.
Duration kernel_clock_error(Instant at);

// Returns whether this program is in a pid namespace of its own, as in a container: its pids are
// not those of the kernel's log. False if this is unknown.
bool has_foreign_pids(const std::string& proc_root);

// Returns the newest relevant messages since query.since, at most kKernelMessagesMax, oldest first;
// no messages if the log cannot be read. `path`: "/dev/kmsg", or a file in its format. Never
// blocks.
std::vector<KernelMessage> read_kernel_messages(const std::string& path,
                                                const KernelMessageQuery& query);

// Like read_kernel_messages(), for records in memory in the format of /dev/kmsg:
// "6,1234,987654321,-;text\n KEY=value".
std::vector<KernelMessage> relevant_kernel_messages(std::span<const std::string> records,
                                                    const KernelMessageQuery& query);

// Returns whether a message reports that the kernel killed `pid` because memory ran out.
bool reports_oom_kill(std::span<const KernelMessage> messages, pid_t pid);

// Returns the resident memory of `pid` in the kernel's message about its kill for memory, in bytes;
// 0: there is no such message.
uint64_t killed_process_bytes(std::span<const KernelMessage> messages, pid_t pid);

// Returns "[43579.126] Out of memory: Killed process 1780 (python) …", the format of dmesg.
std::string kernel_message_text(const KernelMessage& message);

}  // namespace muster::worker
