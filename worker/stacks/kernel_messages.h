// Lines of the kernel's log that explain why a rank died or waits: kills for memory, GPU errors (Xid), failing disks and file
// systems, hung tasks, and whatever names one of our processes. Read from /dev/kmsg where that is allowed (root, or CAP_SYSLOG).
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
  Instant at;        // the kernel's clock is CLOCK_MONOTONIC but for suspends
  std::string text;  // printable, without the facility
};

struct KernelMessageQuery {
  std::span<const pid_t> pids;  // ours
  Instant since;
};

// What concerns us, oldest first, of more than kKernelMessagesMax the newest; empty where the log cannot be read. Never waits. `path`: "/dev/kmsg".
std::vector<KernelMessage> read_kernel_messages(const std::string& path,
                                                const KernelMessageQuery& query);

// The same of records in memory, one of /dev/kmsg per element: "6,1234,987654321,-;text\n KEY=value".
std::vector<KernelMessage> relevant_kernel_messages(std::span<const std::string> records,
                                                    const KernelMessageQuery& query);

// Whether some message says that `pid` was killed for want of memory.
bool says_oom_killed(std::span<const KernelMessage> messages, pid_t pid);

// "[43579.126] Out of memory: Killed process 1780 (python) …", as dmesg prints it.
std::string kernel_message_text(const KernelMessage& message);

}  // namespace muster::worker
