// What a worker can say of one rank of a job that may hang, without the rank's cooperation: its progress page, its process' state
// and the end of its output. A value that travels from the worker to blame; bounded and printable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/progress_page.h"
#include "common/time.h"

namespace muster {

constexpr size_t kEvidenceLinesMax = 20;       // last lines of output
constexpr size_t kEvidenceLineBytesMax = 512;  // of each, and of each message of the kernel
constexpr size_t kEvidenceFilesMax = 8;        // dumps of a rank's programs
constexpr size_t kKernelMessagesMax = 50;      // of a node, the newest

// A process group of the rank, as its page has it.
struct GroupEvidence {
  std::string name;      // "fsdp+context#1": axes and lane
  uint32_t members = 0;  // ranks in the group; 0: its program does not say
  uint32_t id = 0;       // the same on all members, and different for two groups of one name
  uint64_t enqueued = 0;
  uint64_t started = 0;
  uint64_t completed = 0;
  // Of the first one that is not completed, where the ring still has it; else of the last one that was enqueued.
  CollectiveKind kind = CollectiveKind::kNone;
  uint32_t dtype = 0;
  uint64_t bytes = 0;
  std::string collective;  // "layer 3 mlp all-gather"; empty when the page's ring has forgotten it
  Duration age{};          // since it was enqueued; zero when the ring has forgotten it
  uint64_t called = 0;     // its number, where it is not the last one's

  // Of its name: 1 of "fsdp+context#1" and of "fsdp#1 nccl", 0 where it has none.
  int32_t lane() const;
  bool waits() const { return completed < enqueued; }
  // Of what kind, bytes and collective tell.
  uint64_t number() const { return called > 0 ? called : enqueued; }
  // The collective is under way: what is handed over and not begun waits for its own stream's other work, and for nobody yet.
  bool is_inside() const { return completed < started; }
  friend bool operator==(const GroupEvidence&, const GroupEvidence&) = default;
};

// Of a control group, in bytes. Cached pages of files are not counted: the kernel takes them before anything stands still.
struct MemoryUse {
  uint64_t used = 0;
  uint64_t limit = 0;  // 0: there is none

  double part() const {
    return limit > 0 ? static_cast<double>(used) / static_cast<double>(limit) : 0;
  }
  bool is_exhausted() const { return part() >= 0.98; }
  friend bool operator==(const MemoryUse&, const MemoryUse&) = default;
};
std::string to_string(const MemoryUse& use);  // "15.9 of 16.0 GiB"

struct RankEvidence {
  int32_t rank = -1;
  int32_t pid = 0;

  std::string page_problem;  // empty: the page was read
  Phase phase = Phase::kInit;
  Duration phase_age{};
  int64_t step = -1;  // steps completed
  Duration progress_age{};
  double step_seconds = 0;             // last step
  double collective_wait_seconds = 0;  // since the attempt began; see the page
  double data_wait_seconds = 0;
  std::vector<GroupEvidence> groups;

  char process_state = '?';   // of /proc/PID/stat; '?': there is no such process
  int32_t tracer_pid = 0;     // a debugger that holds it; 0: none
  std::string wait_channel;   // of the main thread, "" when it runs or the kernel does not tell
  std::string stack_problem;  // empty: stacks were read
  std::string stack_note;  // what is missing in them: "no Python frames: py-spy is not installed"
  std::vector<std::string> last_lines;  // of its output, oldest first
  std::vector<std::string>
      files{};         // on its node, that its programs have dumped into: "PATH (1234 bytes)"
  MemoryUse memory{};  // of its control group

  friend bool operator==(const RankEvidence&, const RankEvidence&) = default;
};

// What is left of a rank that has ended.
struct EndEvidence {
  RankEvidence rank;  // its page as the rank left it, and the end of its output
  std::vector<std::string> kernel_messages;  // of its node, of about that time

  friend bool operator==(const EndEvidence&, const EndEvidence&) = default;
};

// The page's groups with the newest of what its ring says of each. `now` is of the page's clock.
RankEvidence evidence_from_page(const ProgressPage& page, Instant now);

}  // namespace muster
