// Lines of the kernel's log that explain why a rank died or waits: out-of-memory kills, GPU errors
// (Xid), failing disks and file systems, hung tasks, and lines that name one of our processes. Read
// from /dev/kmsg if permitted (root, or CAP_SYSLOG).
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/rank_evidence.h"
#include "common/time.h"

namespace muster::worker {

constexpr const char* kKernelLog = "/dev/kmsg";

struct KernelMessage {
  Instant at;        // by the kernel's clock, which is CLOCK_MONOTONIC except after a suspend
  std::string text;  // printable, without the facility
};

struct KernelMessageQuery {
  std::span<const pid_t> pids;  // pids of our processes
  Instant since;
};

// Returns the newest kKernelMessagesMax relevant messages, oldest first; none if the log cannot be
// read. Never blocks. `path`: "/dev/kmsg".
std::vector<KernelMessage> read_kernel_messages(const std::string& path,
                                                const KernelMessageQuery& query);

// Like read_kernel_messages(), for records in memory in the format of /dev/kmsg:
// "6,1234,987654321,-;text\n KEY=value".
std::vector<KernelMessage> relevant_kernel_messages(std::span<const std::string> records,
                                                    const KernelMessageQuery& query);

// Returns whether a message reports that `pid` was killed for memory.
bool reports_oom_kill(std::span<const KernelMessage> messages, pid_t pid);

// Returns "[43579.126] Out of memory: Killed process 1780 (python) …", the format of dmesg.
std::string kernel_message_text(const KernelMessage& message);

}  // namespace muster::worker
