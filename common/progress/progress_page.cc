#include "common/progress/progress_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <absl/cleanup/cleanup.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/files/ranks_file.h"

namespace muster {
namespace {

// A writer holds the lock for nanoseconds; after this many torn reads the writer is dead.
constexpr int kTornReadRetriesMax = 1000;

template <size_t N>
void copy_name(std::string_view from, std::array<char, N>& to) {
  to.fill('\0');
  std::copy_n(from.begin(), std::min(from.size(), N - 1), to.begin());
}

// Reads the file's first page. Does not map it: the writer may truncate the file at any time, and a
// mapping would then end the reader with SIGBUS.
absl::Status read_page_bytes(int fd, const std::string& path, ProgressPage* page) {
  ssize_t got = 0;
  do {
    got = pread(fd, page, sizeof(*page), 0);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return errno_status(errno, absl::StrCat("reading ", path));
  if (got == static_cast<ssize_t>(sizeof(*page))) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("progress page ", path, " is truncated: ", got, " of ",
                                          kProgressPageBytes, " bytes"));
}

}  // namespace

std::string_view phase_name(Phase phase) {
  const auto i = static_cast<size_t>(phase);
  return i < kPhaseNames.size() ? kPhaseNames[i] : "UNKNOWN";
}
std::string_view collective_name(CollectiveKind kind) {
  const auto i = static_cast<size_t>(kind);
  return i < kCollectiveNames.size() ? kCollectiveNames[i] : "unknown";
}

ProgressWriter::ProgressWriter(ProgressPage* page, bool mapped_file,
                               const ProgressIdentity& identity)
    : page_(page), mapped_file_(mapped_file) {
  update([&](ProgressPage& p) {
    p.magic = kProgressPageMagic;
    p.version = kProgressPageVersion;
    p.page_bytes = kProgressPageBytes;
    p.job = identity.job;
    p.attempt = identity.attempt;
    p.incarnation = identity.incarnation;
    p.rank = identity.rank;
    p.local_rank = identity.local_rank;
    p.world_size = identity.world_size;
    p.total_steps = identity.total_steps;
    p.pid = getpid();
    p.phase = Phase::kInit;
    p.start_ns = to_ns(monotonic_now());
    p.phase_start_ns = p.start_ns;
    p.last_progress_ns = p.start_ns;
    p.step = -1;
    p.checkpoint_step = -1;
  });
}

absl::StatusOr<std::unique_ptr<ProgressWriter>> ProgressWriter::create(
    const std::string& path, const ProgressIdentity& identity) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return errno_status(errno, absl::StrCat("progress page ", path));
  absl::Cleanup close_fd = [fd] { close(fd); };
  // Allocates the blocks now, so that a full disk is an error here and not a SIGBUS at the first
  // store.
  if (const int error = posix_fallocate(fd, 0, kProgressPageBytes); error != 0) {
    return errno_status(error, absl::StrCat("progress page ", path));
  }
  void* memory = mmap(nullptr, kProgressPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return errno_status(errno, absl::StrCat("mapping ", path));
  return std::unique_ptr<ProgressWriter>(
      new ProgressWriter(static_cast<ProgressPage*>(memory), true, identity));
}

std::unique_ptr<ProgressWriter> ProgressWriter::anonymous(const ProgressIdentity& identity) {
  return std::unique_ptr<ProgressWriter>(new ProgressWriter(new ProgressPage{}, false, identity));
}

ProgressWriter::~ProgressWriter() {
  if (mapped_file_) {
    munmap(page_, kProgressPageBytes);
  } else {
    delete page_;
  }
}

// Changes a private copy, then stores the words that differ inside the sequence lock.
template <class F>
void ProgressWriter::update(F&& change) {
  const std::lock_guard lock(mutex_);
  std::atomic_ref<uint64_t> sequence(page_->sequence);
  const uint64_t before = sequence.load(std::memory_order_relaxed);
  ProgressPage next;
  std::memcpy(&next, page_, sizeof(next));
  change(next);
  next.sequence = before + 1;
  sequence.store(before + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  auto* target = reinterpret_cast<uint64_t*>(page_);
  const auto* source = reinterpret_cast<const uint64_t*>(&next);
  for (size_t i = 0; i < sizeof(ProgressPage) / sizeof(uint64_t); ++i) {
    if (target[i] != source[i]) {
      std::atomic_ref<uint64_t>(target[i]).store(source[i], std::memory_order_relaxed);
    }
  }
  sequence.store(before + 2, std::memory_order_release);
}

void ProgressWriter::set_phase(Phase phase, Instant now) {
  update([&](ProgressPage& p) {
    p.phase = phase;
    p.phase_start_ns = to_ns(now);
    p.last_progress_ns = to_ns(now);
  });
}

void ProgressWriter::set_device_peak_tflops(double tflops) {
  update([&](ProgressPage& p) { p.device_peak_tflops = tflops; });
}

void ProgressWriter::set_checkpoint_step(int64_t step) {
  update([&](ProgressPage& p) { p.checkpoint_step = step; });
}

void ProgressWriter::offer_checkpoints() {
  update([&](ProgressPage& p) { p.checkpoints.on_request = 1; });
}

void ProgressWriter::end_checkpoint(const CheckpointProgress& progress) {
  update([&](ProgressPage& p) {
    if (!progress.saved) {
      ++p.checkpoints.failed;
      return;
    }
    ++p.checkpoints.saved;
    p.checkpoints.seconds = progress.seconds;
    p.checkpoint_step = progress.step;
  });
}

void ProgressWriter::set_save_progress(uint32_t saving_mib, uint32_t written_mib) {
  update([&](ProgressPage& p) {
    p.checkpoints.saving_mib = saving_mib;
    p.checkpoints.written_mib = written_mib;
  });
}

void ProgressWriter::add_checkpoint_stall(double seconds) {
  update([&](ProgressPage& p) { p.checkpoints.stall_seconds += seconds; });
}

void ProgressWriter::complete_step(const StepProgress& progress, Instant now) {
  update([&](ProgressPage& p) {
    p.step_seconds_ewma =
        p.step_seconds_ewma == 0
            ? progress.seconds
            : p.step_seconds_ewma + kStepEwmaWeight * (progress.seconds - p.step_seconds_ewma);
    p.step = progress.step;
    p.loss = progress.loss;
    p.grad_norm = progress.grad_norm;
    p.step_seconds = progress.seconds;
    p.step_times.add(progress.seconds);
    p.data_wait_seconds += progress.data_wait_seconds;
    p.collective_wait_seconds += progress.collective_wait_seconds;
    p.tokens += progress.tokens;
    p.tflops_per_device = progress.tflops_per_device;
    p.learning_rate = progress.learning_rate;
    p.last_progress_ns = to_ns(now);
  });
}

void ProgressWriter::complete_evaluation(int64_t step, double loss, Instant now) {
  update([&](ProgressPage& p) {
    p.eval_step = step;
    p.eval_loss = loss;
    p.last_progress_ns = to_ns(now);
  });
}

int ProgressWriter::add_group(std::string_view name, uint32_t members, uint32_t id) {
  int index = -1;
  update([&](ProgressPage& p) {
    if (p.group_count >= kProgressGroupsMax) return;
    index = static_cast<int>(p.group_count++);
    GroupProgress& group = p.groups[static_cast<size_t>(index)];
    copy_name(name, group.name);
    group.members = members;
    group.id = id;
  });
  return index;
}

uint64_t ProgressWriter::begin_collective(int group, CollectiveKind kind, std::string_view name,
                                          uint64_t bytes, uint32_t dtype, Instant now) {
  return record_collective(group, kind, name, bytes, dtype, now, /*starts=*/true);
}

uint64_t ProgressWriter::enqueue_collective(int group, CollectiveKind kind, std::string_view name,
                                            uint64_t bytes, uint32_t dtype, Instant now) {
  return record_collective(group, kind, name, bytes, dtype, now, /*starts=*/false);
}

void ProgressWriter::start_collective(int group, uint64_t seq) {
  if (group < 0) return;
  update([&](ProgressPage& p) { p.groups[static_cast<size_t>(group)].started = seq; });
}

uint64_t ProgressWriter::record_collective(int group, CollectiveKind kind, std::string_view name,
                                           uint64_t bytes, uint32_t dtype, Instant now,
                                           bool starts) {
  if (group < 0) return 0;
  const auto g = static_cast<size_t>(group);
  const uint64_t seq = page_->groups[g].enqueued + 1;
  update([&](ProgressPage& p) {
    GroupProgress& progress = p.groups[g];
    progress.enqueued = seq;
    if (starts) progress.started = seq;
    progress.bytes = bytes;
    progress.kind = kind;
    progress.dtype = dtype;
    CollectiveRecord& record = p.ring[p.ring_head % kProgressRingLength];
    record = {.seq = seq,
              .group = static_cast<uint32_t>(group),
              .kind = kind,
              .bytes = bytes,
              .enqueued_ns = to_ns(now),
              .completed_ns = 0,
              .name = {}};
    copy_name(name, record.name);
    ++p.ring_head;
  });
  return seq;
}

void ProgressWriter::complete_collective(int group, uint64_t seq, Instant now) {
  if (group < 0) return;
  update([&](ProgressPage& p) {
    p.groups[static_cast<size_t>(group)].completed = seq;
    for (CollectiveRecord& record : p.ring) {
      const bool same = record.seq == seq && record.group == static_cast<uint32_t>(group);
      if (same && record.completed_ns == 0) record.completed_ns = to_ns(now);
    }
    p.last_progress_ns = to_ns(now);
  });
}

absl::Status validate_progress_page(ProgressPage& page) {
  if (page.magic != kProgressPageMagic)
    return absl::DataLossError("not a progress page (magic differs)");
  if (page.version != kProgressPageVersion) {
    return absl::DataLossError(absl::StrCat("progress page version ", page.version,
                                            ", this program reads ", kProgressPageVersion));
  }
  if (page.page_bytes != kProgressPageBytes) {
    return absl::DataLossError(
        absl::StrCat("progress page claims ", page.page_bytes, " bytes, not ", kProgressPageBytes));
  }
  page.group_count = std::min<uint32_t>(page.group_count, kProgressGroupsMax);
  for (GroupProgress& group : page.groups) group.name.back() = '\0';
  for (CollectiveRecord& record : page.ring) record.name.back() = '\0';
  return absl::OkStatus();
}

absl::StatusOr<ProgressPage> read_progress_page(const std::string& path) {
  const int fd = open_ranks_file(path);
  if (fd < 0) return errno_status(errno, absl::StrCat("progress page ", path));
  absl::Cleanup close_fd = [fd] { close(fd); };
  // The kernel copies in no guaranteed order, so an even sequence before and after a copy proves
  // nothing. If two copies are equal, no write was in progress while they were made.
  ProgressPage copy;
  ProgressPage again;
  if (auto status = read_page_bytes(fd, path, &copy); !status.ok()) return status;
  for (int attempt = 0; attempt < kTornReadRetriesMax; ++attempt) {
    if (auto status = read_page_bytes(fd, path, &again); !status.ok()) return status;
    // Compares bytes, so that a NaN loss equals itself.
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
    const bool whole = again.sequence % 2 == 0 && std::memcmp(&copy, &again, sizeof(copy)) == 0;
    if (whole) break;
    copy = again;
    if (attempt + 1 == kTornReadRetriesMax) copy.sequence |= 1;
  }
  if (auto status = validate_progress_page(copy); !status.ok()) {
    return absl::DataLossError(absl::StrCat(path, ": ", status.message()));
  }
  return copy;
}

}  // namespace muster
