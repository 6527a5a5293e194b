// The progress page: the current state of one rank, in a memory-mapped file that can be read at any
// time. A write costs well below a microsecond and no system call; a read needs no cooperation, so
// it works while the rank hangs, is in D state, or is dead.
//
// A page has one writing process, and any number of readers in any process. A sequence lock guards
// the page: `sequence` is odd while the writer is inside. Readers copy, compare and retry a bounded
// number of times. The page is little endian, and every field is naturally aligned.
//
// Layout, version 4 (offsets in bytes):
//
//      0  u8[8]  magic "MUSTPAGE"            88  i64  last_progress_ns (CLOCK_MONOTONIC)
//      8  u32    version = 4                 96  i64  step (steps completed; -1 before the first)
//     12  u32    page_bytes                 104  f64  loss (mean over the last step's targets)
//     16  u64    sequence                   112  f64  grad_norm (global L2, before clipping)
//     24  u64    job                        120  f64  step_seconds (last step)
//     32  u32    attempt                    128  f64  step_seconds_ewma (weight 0.1 on the newest)
//     36  i32    rank                       136  u64  tokens (this rank, since the attempt began)
//     40  i32    local_rank                 144  f64  tflops_per_device (last step)
//     44  i32    world_size                 152  f64  device_peak_tflops (0: unknown)
//     48  i32    pid                        160  f64  learning_rate
//     52  u32    phase (Phase)              168  i64  checkpoint_step (newest complete; -1: none)
//     56  u64    incarnation                176  i64  total_steps (of the job; -1: unknown)
//     64  i64    start_ns                   184  u32  group_count
//     72  i64    phase_start_ns             188  u32  ring_head (collectives recorded, mod 2^32)
//     80  i64    reserved, zero             192  GroupProgress[32], 104 bytes each
//                                          3520  CollectiveRecord[32], 72 bytes each
//                                          5824  StepTimes, 136 bytes
//                                          5960  CheckpointTimes, 48 bytes
//                                          6008  f64  data_wait_seconds (of StepTimes' steps)
//                                          6016  i64  eval_step (at the last evaluation; 0: none)
//                                          6024  f64  eval_loss (mean over its targets)
//                                          6032  f64  collective_wait_seconds (of StepTimes' steps)
//                                          6040  zero up to page_bytes = 8192
//
// GroupProgress: 0 char[56] name (NUL-padded) | 56 u64 enqueued | 64 u64 started |
//                72 u64 completed | 80 u64 bytes (of the last enqueued) | 88 u32 kind |
//                92 u32 dtype | 96 u32 members (ranks in the group; 0: unknown) |
//                100 u32 id (equal on all its members, different for two groups of one name:
//                readers match members without the mesh)
// CollectiveRecord: 0 u64 seq | 8 u32 group | 12 u32 kind | 16 u64 bytes | 24 i64 enqueued_ns |
//                   32 i64 completed_ns (0: not yet) | 40 char[32] name (NUL-padded)
// StepTimes: 0 u64[16] completed steps since the attempt began, by duration (bounds:
//            common/progress/step_times.h) | 128 f64 seconds of all of them
// CheckpointTimes: 0 u64 saved | 8 u64 failed (both since the attempt began) |
//                  16 f64 seconds (of the last write) |
//                  24 f64 stall_seconds (training time lost, since the attempt began) |
//                  32 u32 on_request (1: SIGUSR2 requests a checkpoint; 0: not handled) |
//                  36 u32 saving_mib (of the save that this rank writes now; 0: none) |
//                  40 u32 written_mib (of that save) | 44 zero
//
// Steps can be faster than readers: step_seconds contains only the last step, and StepTimes counts
// all steps.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "common/progress/checkpoint_times.h"
#include "common/progress/step_times.h"
#include "common/time/time.h"

namespace muster {

constexpr std::array<char, 8> kProgressPageMagic = {'M', 'U', 'S', 'T', 'P', 'A', 'G', 'E'};
constexpr uint32_t kProgressPageVersion = 4;
constexpr uint32_t kProgressPageBytes = 8192;
constexpr int kProgressGroupsMax = 32;   // process groups per rank: axis sets times channels
constexpr int kProgressRingLength = 32;  // most recent collectives that are retained
constexpr double kStepEwmaWeight = 0.1;

// The current activity of a rank. Each phase has its own time budget in the hang detector.
//
//   kInit → kRendezvous → kLoad → [kCheckpointRestore] → kCompile → (kData → kStep → [kEval] →
//   [kCheckpointSave])* → kShutdown
enum class Phase : uint32_t {
  kInit,
  kRendezvous,
  kLoad,
  kCompile,
  kData,
  kStep,
  kEval,
  kCheckpointSave,
  kCheckpointRestore,
  kShutdown,
};
constexpr std::array<std::string_view, 10> kPhaseNames = {"INIT",
                                                          "RENDEZVOUS",
                                                          "LOAD",
                                                          "COMPILE",
                                                          "DATA",
                                                          "STEP",
                                                          "EVAL",
                                                          "CHECKPOINT_SAVE",
                                                          "CHECKPOINT_RESTORE",
                                                          "SHUTDOWN"};
// Returns "STEP" for kStep, and "UNKNOWN" for a value that no version defines.
std::string_view phase_name(Phase phase);

enum class CollectiveKind : uint32_t {
  kNone,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kSend,
  kRecv,
  kBarrier,
  kSendRecv,
};
constexpr std::array<std::string_view, 10> kCollectiveNames = {
    "none",      "all-reduce", "all-gather", "reduce-scatter", "all-to-all",
    "broadcast", "send",       "recv",       "barrier",        "send-recv"};
// Returns "all-reduce" for kAllReduce, and "unknown" for a value that no version defines.
std::string_view collective_name(CollectiveKind kind);

struct GroupProgress {
  std::array<char, 56> name;  // fits all axes and a channel
  uint64_t enqueued;          // sequence number of the last enqueued collective, from 1
  uint64_t started;           // number of the last collective that began to move data
  uint64_t completed;         // number of the last collective that completed on this rank
  uint64_t bytes;
  CollectiveKind kind;
  uint32_t dtype;
  uint32_t members;
  uint32_t id;
};
static_assert(sizeof(GroupProgress) == 104);

struct CollectiveRecord {
  uint64_t seq;
  uint32_t group;
  CollectiveKind kind;
  uint64_t bytes;
  int64_t enqueued_ns;
  int64_t completed_ns;
  std::array<char, 32> name;
};
static_assert(sizeof(CollectiveRecord) == 72);

// The page as a struct; its fields are the layout above.
struct ProgressPage {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t page_bytes;
  uint64_t sequence;
  uint64_t job;
  uint32_t attempt;
  int32_t rank;
  int32_t local_rank;
  int32_t world_size;
  int32_t pid;
  Phase phase;
  uint64_t incarnation;
  int64_t start_ns;
  int64_t phase_start_ns;
  int64_t reserved;
  int64_t last_progress_ns;
  int64_t step;
  double loss;
  double grad_norm;
  double step_seconds;
  double step_seconds_ewma;
  uint64_t tokens;
  double tflops_per_device;
  double device_peak_tflops;
  double learning_rate;
  int64_t checkpoint_step;
  int64_t total_steps;
  uint32_t group_count;
  uint32_t ring_head;
  std::array<GroupProgress, kProgressGroupsMax> groups;
  std::array<CollectiveRecord, kProgressRingLength> ring;
  StepTimes step_times;
  CheckpointTimes checkpoints;
  double data_wait_seconds;
  int64_t eval_step;
  double eval_loss;
  double collective_wait_seconds;
  std::array<char, 2152> padding;
};
static_assert(sizeof(ProgressPage) == kProgressPageBytes);
static_assert(offsetof(ProgressPage, phase) == 52 &&
              offsetof(ProgressPage, last_progress_ns) == 88);
static_assert(offsetof(ProgressPage, group_count) == 184 && offsetof(ProgressPage, groups) == 192);
static_assert(offsetof(ProgressPage, ring) == 3520 && offsetof(ProgressPage, step_times) == 5824);
static_assert(sizeof(StepTimes) == 136 && offsetof(ProgressPage, checkpoints) == 5960 &&
              offsetof(ProgressPage, data_wait_seconds) == 6008 &&
              offsetof(ProgressPage, padding) == 6040);

// The identity of a rank, which its page holds unchanged.
struct ProgressIdentity {
  uint64_t job = 0;
  uint32_t attempt = 0;
  uint64_t incarnation = 0;
  int32_t rank = 0;
  int32_t local_rank = 0;
  int32_t world_size = 1;
  int64_t total_steps = -1;
};

// The results of one completed step.
struct StepProgress {
  int64_t step = -1;  // steps completed
  double loss = 0;
  double grad_norm = 0;
  double seconds = 0;
  double data_wait_seconds = 0;        // part of `seconds` spent waiting for data
  double collective_wait_seconds = 0;  // part of `seconds` that the computation waited for peers
  uint64_t tokens = 0;                 // tokens of this rank in this step
  double tflops_per_device = 0;
  double learning_rate = 0;
};

// The result of a checkpoint save.
struct CheckpointProgress {
  int64_t step = -1;
  bool saved = false;
  double seconds = 0;  // duration of the write
};

// Writes the page of one rank. Thread-safe, except that only one thread at a time may enqueue
// collectives of one group. Each method changes a copy of the page and stores the words that
// differ: it reads 8 KiB and makes no system call unless two threads contend.
class ProgressWriter {
 public:
  // Creates (or truncates) `path` with access for its user alone, maps it and writes the identity
  // with phase kInit.
  static absl::StatusOr<std::unique_ptr<ProgressWriter>> create(const std::string& path,
                                                                const ProgressIdentity& identity);
  // Returns a writer whose page is private memory without readers, for programs that run without a
  // worker.
  static std::unique_ptr<ProgressWriter> anonymous(const ProgressIdentity& identity);
  ~ProgressWriter();
  ProgressWriter(const ProgressWriter&) = delete;
  ProgressWriter& operator=(const ProgressWriter&) = delete;

  void set_phase(Phase phase, Instant now);
  void set_device_peak_tflops(double tflops);
  void set_checkpoint_step(int64_t step);
  // Declares that from now on SIGUSR2 requests a checkpoint from this process.
  void offer_checkpoints();
  void end_checkpoint(const CheckpointProgress& progress);
  // Publishes the size of the save in progress and the part that is written, in MiB. Both are 0 if
  // no save is in progress.
  void set_save_progress(uint32_t saving_mib, uint32_t written_mib);
  void add_checkpoint_stall(double seconds);
  void complete_step(const StepProgress& progress, Instant now);
  // Records an evaluation after `step` completed steps.
  void complete_evaluation(int64_t step, double loss, Instant now);

  // Registers a process group and returns its index, or -1 if kProgressGroupsMax are registered
  // (the collectives of such a group are not recorded). `name` is cut to 55 bytes; see the layout
  // for `members` and `id`.
  int add_group(std::string_view name, uint32_t members, uint32_t id);
  // Records the next collective of `group` as enqueued and started. Returns its sequence number,
  // which complete_collective() takes.
  uint64_t begin_collective(int group, CollectiveKind kind, std::string_view name, uint64_t bytes,
                            uint32_t dtype, Instant now);
  // Records the next collective as enqueued; start_collective() follows when it begins to move
  // data. Several may be enqueued; one other thread starts and completes them in order.
  uint64_t enqueue_collective(int group, CollectiveKind kind, std::string_view name, uint64_t bytes,
                              uint32_t dtype, Instant now);
  void start_collective(int group, uint64_t seq);
  void complete_collective(int group, uint64_t seq, Instant now);

  const ProgressPage& page() const { return *page_; }

 private:
  ProgressWriter(ProgressPage* page, bool mapped_file, const ProgressIdentity& identity);

  template <class F>
  void update(F&& change);
  uint64_t record_collective(int group, CollectiveKind kind, std::string_view name, uint64_t bytes,
                             uint32_t dtype, Instant now, bool starts);

  std::mutex mutex_;    // held while a thread changes the page
  ProgressPage* page_;  // owned mapping
  bool mapped_file_;
};

// Copies a consistent snapshot of the page at `path`. Returns NotFound if there is no such file;
// DataLoss if it is truncated or has another magic or version. If the page stays torn for the
// bounded number of retries (its writer died or was stopped inside an update), returns it as it is,
// with an odd `sequence`.
absl::StatusOr<ProgressPage> read_progress_page(const std::string& path);

// Checks magic, version and size of untrusted bytes, and clamps the fields that index arrays.
// Shared by the reader and its fuzzer.
absl::Status validate_progress_page(ProgressPage& page);

}  // namespace muster
