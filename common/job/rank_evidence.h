// A worker's evidence about one rank of a job that may hang, collected without the rank's
// cooperation: its progress page, its process state and the last lines of its output. A bounded and
// printable value, which the worker sends and the coordinator's blame reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/progress/progress_page.h"
#include "common/time/time.h"

namespace muster {

constexpr size_t kEvidenceLinesMax = 20;       // last lines of output
constexpr size_t kEvidenceLineBytesMax = 512;  // per line of output, and per kernel message
constexpr size_t kEvidenceFilesMax = 8;        // dump files of a rank's programs
constexpr size_t kKernelMessagesMax = 50;      // maximum number of kernel messages per node

// A process group of the rank, as recorded in its page.
struct GroupEvidence {
  std::string name;      // "fsdp+context#1" (axes and channel), or a foreign program's name
  uint32_t members = 0;  // ranks in the group; 0: not reported
  uint32_t id = 0;       // equal on all members; differs between two groups of one name
  uint64_t enqueued = 0;
  uint64_t started = 0;
  uint64_t completed = 0;
  // The fields below describe the first collective that is not completed, if the ring still holds
  // it, and otherwise the last collective enqueued.
  CollectiveKind kind = CollectiveKind::kNone;
  uint32_t dtype = 0;
  uint64_t bytes = 0;
  // "layer 3 mlp all-gather"; empty if the page's ring no longer holds the collective
  std::string collective;
  // time since the collective was enqueued; zero if the ring no longer holds it
  Duration age{};
  // sequence number of the collective if it is not the last one enqueued; else 0
  uint64_t called = 0;

  // Returns the channel in a name that the built-in trainer writes
  // (trainer_core/comm/process_groups.h): 1 for "fsdp+context#1" and "fsdp#1 nccl", 0 for "fsdp".
  // Names of user programs have no channel: 0 for "x#7".
  int32_t channel() const;
  // Returns whether a collective is enqueued and not completed.
  bool waits() const { return completed < enqueued; }
  // Returns the sequence number of the collective that kind, bytes and collective describe.
  uint64_t number() const { return called > 0 ? called : enqueued; }
  // Returns whether the rank is inside a collective. A collective that is enqueued and not started
  // waits for earlier work of its own stream, and not for peers.
  bool is_inside() const { return completed < started; }
  friend bool operator==(const GroupEvidence&, const GroupEvidence&) = default;
};

// Memory of a control group, in bytes. Excludes the page cache of files, which the kernel reclaims
// before processes stall.
struct MemoryUse {
  uint64_t used = 0;
  uint64_t limit = 0;  // 0: no limit

  // Returns the used part of the limit, 0 to 1; 0 if there is no limit.
  double part() const {
    return limit > 0 ? static_cast<double>(used) / static_cast<double>(limit) : 0;
  }
  // Returns whether a further allocation is likely to fail.
  bool is_exhausted() const { return part() >= 0.98; }
  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;
};
// Returns "15.9 of 16.0 GiB".
std::string to_string(const MemoryUse& use);

// The activity of a rank: of its process and its descendants, at one moment.
struct ProcessActivity {
  bool is_known = false;    // false: could not be read, or the worker is older
  Duration cpu{};           // CPU time so far, with that of ended children
  uint64_t io_bytes = 0;    // bytes read and written by system calls so far
  uint32_t busy = 0;        // threads that run, or wait in the kernel without being interruptible
  bool is_asleep = false;   // the main thread of a process waits for a time, as in sleep()
  bool has_device = false;  // a process has an accelerator open, whose work uses no CPU time
  int32_t stopped_pid = 0;  // a descendant that is stopped (SIGSTOP); 0: none
  std::string stopped_name{};

  friend bool operator==(const ProcessActivity&, const ProcessActivity&) = default;
};

// The evidence about one rank.
struct RankEvidence {
  int32_t rank = -1;
  int32_t pid = 0;

  std::string page_problem;  // reason why the page was not read; empty: it was
  Phase phase = Phase::kInit;
  Duration phase_age{};
  int64_t step = -1;  // steps completed
  Duration progress_age{};
  double step_seconds = 0;             // duration of the last step
  double collective_wait_seconds = 0;  // since the attempt began; see the page
  double data_wait_seconds = 0;
  std::vector<GroupEvidence> groups;

  char process_state = '?';  // from /proc/PID/stat; '?': no such process
  int32_t tracer_pid = 0;    // pid of the process's debugger; 0: none
  // kernel function in which the main thread waits; "" if the thread runs or the kernel hides it
  std::string wait_channel;
  std::string stack_problem;  // reason why no stacks were read; empty: they were
  // the frames that the stacks lack, with the reason: "no Python frames: py-spy is not installed"
  std::string stack_note;
  std::vector<std::string> last_lines;  // last output lines, oldest first
  // dump files that the rank's programs left on the node: "PATH (1234 bytes)"
  std::vector<std::string> files{};
  MemoryUse memory{};  // memory of the control group
  ProcessActivity activity{};

  friend bool operator==(const RankEvidence&, const RankEvidence&) = default;
};

// Evidence about a rank that has ended.
struct EndEvidence {
  // the rank's last page and the end of its output
  RankEvidence rank;
  // the node's kernel messages around the end of the rank
  std::vector<std::string> kernel_messages;

  friend bool operator==(const EndEvidence&, const EndEvidence&) = default;
};

// Returns the evidence that the page contains, each process group with the relevant collective of
// the ring. `now` is the present time of CLOCK_MONOTONIC, the page's clock.
RankEvidence evidence_from_page(const ProgressPage& page, Instant now);

}  // namespace muster
