#include "trainer_core/startup/node_check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "common/files/errno_status.h"
#include "common/process/start_limits.h"
#include "common/random/fnv.h"

namespace muster::trainer {
namespace {

using Text = absl::StatusOr<std::string>;

// The side of the matrices: 33.5 million multiply-adds, which take a core some milliseconds.
constexpr int kSide = 256;
constexpr double kFlops = 2.0 * kSide * kSide * kSide;
// The checksum of the bytes of the correct result. All values are integers below 2^24, so the
// result is exact in any order of additions, with or without fused multiply-adds.
constexpr uint64_t kProductChecksum = 0x4934BE953F143F52ULL;
constexpr size_t kDiskBytes = size_t{4} << 20;
constexpr size_t kShmBytes = size_t{1} << 20;
// 2024-01-01: an earlier wall clock was never set.
constexpr int64_t kUnixNsMin = 1'704'067'200'000'000'000;

int whole_number(int row, int column, int by) { return (row * 7 + column * by) % 31 - 15; }

// Computes C (kSide, kSide) = A B on this thread and returns the checksum of C.
uint64_t product_checksum() {
  constexpr size_t kSize = size_t{kSide} * kSide;
  std::vector<float> a(kSize), b(kSize), c(kSize);
  size_t index = 0;
  for (int i = 0; i < kSide; ++i) {
    for (int j = 0; j < kSide; ++j, ++index) {
      a[index] = static_cast<float>(whole_number(i, j, 13));
      b[index] = static_cast<float>(whole_number(i, j, 11));
    }
  }
  for (size_t i = 0; i < kSide; ++i) {
    float* row = &c[i * kSide];
    for (size_t k = 0; k < kSide; ++k) {
      const float factor = a[i * kSide + k];
      const float* other = &b[k * kSide];
      for (size_t j = 0; j < kSide; ++j) row[j] += factor * other[j];
    }
  }
  return fnv1a({reinterpret_cast<const char*>(c.data()), c.size() * sizeof(float)});
}

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {0};
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

Text check_cores() {
  const std::vector<int> cores = usable_cores();
  struct Result {
    uint64_t checksum = 0;
    Duration time{};
  };
  std::vector<Result> results(cores.size());
  if (auto status = try_threads("the check of the cores", cores.size(), shell_limits());
      !status.ok())
    return status;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < cores.size(); ++i) {
    threads.emplace_back([&, i] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cores[i], &one);
      // If pinning fails, the kernel distributes the threads over the cores.
      pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
      const Instant began = monotonic_now();
      results[i].checksum = product_checksum();
      results[i].time = monotonic_now() - began;
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<int> wrong;
  Duration fastest = Duration::max();
  Duration slowest{};
  for (size_t i = 0; i < cores.size(); ++i) {
    if (results[i].checksum != kProductChecksum) wrong.push_back(cores[i]);
    fastest = std::min(fastest, results[i].time);
    slowest = std::max(slowest, results[i].time);
  }
  if (!wrong.empty()) {
    return absl::DataLossError(absl::StrCat(wrong.size() == 1 ? "core " : "cores ",
                                            absl::StrJoin(wrong, ", "), " computed a wrong GEMM"));
  }
  return absl::StrFormat("%d cores correct, %.1f to %.1f GFLOP/s each", cores.size(),
                         kFlops / static_cast<double>(slowest.count()),
                         kFlops / static_cast<double>(fastest.count()));
}

// Returns a test word that differs between adjacent words and between addresses that differ in one
// bit.
uint64_t pattern(size_t i) { return (i + 1) * 0x9E3779B97F4A7C15ULL; }

Text check_memory(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return errno_status(errno, absl::StrCat("getting ", bytes >> 20, " MiB of memory"));
  absl::Cleanup free_memory = [&] { munmap(memory, bytes); };
  auto* words = static_cast<volatile uint64_t*>(memory);
  const size_t count = bytes / sizeof(uint64_t);
  const Instant began = monotonic_now();
  for (const uint64_t flip : {uint64_t{0}, ~uint64_t{0}}) {
    for (size_t i = 0; i < count; ++i) words[i] = pattern(i) ^ flip;
    for (size_t i = 0; i < count; ++i) {
      if (words[i] != (pattern(i) ^ flip)) {
        return absl::DataLossError(
            absl::StrCat("memory returned a different word than was written, ",
                         i * sizeof(uint64_t), " bytes into ", bytes >> 20, " MiB"));
      }
    }
  }
  const double touched = 4.0 * static_cast<double>(bytes);
  return absl::StrFormat("%d MiB of memory correct, %.1f GB/s", bytes >> 20,
                         touched / static_cast<double>((monotonic_now() - began).count()));
}

absl::Status write_all(int fd, std::string_view data, const std::string& what) {
  while (!data.empty()) {
    const ssize_t written = write(fd, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return file_status(errno, what);
    data.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

Text check_folder(const std::string& folder, size_t bytes, bool durable) {
  std::string path = absl::StrCat(folder, "/muster-node-check.XXXXXX");
  const std::string what = absl::StrCat("writing ", bytes >> 20, " MiB into ", folder);
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return file_status(errno, absl::StrCat("making a file in ", folder));
  absl::Cleanup close_file = [&] { close(fd); };
  // Unlinked at once, because a check that hangs is killed and cannot clean up.
  unlink(path.c_str());
  std::string data(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(pattern(i) >> 56);
  const Instant began = monotonic_now();
  if (absl::Status status = write_all(fd, data, what); !status.ok()) return status;
  if (durable && fsync(fd) != 0) return file_status(errno, what);
  const Duration took = monotonic_now() - began;
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);  // makes the read come from the disk
  std::string back(bytes, '\0');
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = pread(fd, &back[done], bytes - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_status(errno, absl::StrCat("reading a file in ", folder));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  if (back != data)
    return absl::DataLossError(absl::StrCat(folder, " returned different bytes than were written"));
  return absl::StrFormat("%d MiB in %s, %s in %.1f ms", bytes >> 20, folder,
                         durable ? "durable" : "written", to_seconds(took) * 1e3);
}

// Checks /dev/shm. A full folder, for instance because of local checkpoints of other jobs, is not a
// fault: training continues without local checkpoints.
Text check_shm(const std::string& folder) {
  Text text = check_folder(folder, kShmBytes, false);
  if (!absl::IsResourceExhausted(text.status())) return text;
  return absl::StrCat("no room in ", folder, " for local checkpoints");
}

Text check_loopback() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int caller = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int callee = -1;
  absl::Cleanup close_all = [&] {
    for (const int fd : {listener, caller, callee}) {
      if (fd >= 0) close(fd);
    }
  };
  const auto failed = [](const char* what) {
    return errno_status(errno, absl::StrCat(what, " on 127.0.0.1"));
  };
  if (listener < 0 || caller < 0) return failed("making a socket");
  constexpr timeval kPatience{2, 0};
  for (const int fd : {listener, caller}) {
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof(kPatience));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  if (bind(listener, raw, size) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, raw, &size) != 0)
    return failed("listening");
  if (connect(caller, raw, size) != 0) return failed("connecting");
  callee = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (callee < 0) return failed("accepting");
  constexpr std::string_view kWord = "muster";
  std::array<char, kWord.size()> received{};
  if (send(callee, kWord.data(), kWord.size(), MSG_NOSIGNAL) != std::ssize(kWord))
    return failed("sending");
  if (recv(caller, received.data(), received.size(), MSG_WAITALL) != std::ssize(kWord))
    return failed("receiving");
  if (std::string_view(received.data(), received.size()) != kWord)
    return absl::DataLossError("127.0.0.1 delivered different bytes than were sent");
  return std::string("loopback answers");
}

Text check_clock() {
  const int64_t wall = wall_clock_unix_ns();
  if (wall < kUnixNsMin)
    return absl::FailedPreconditionError("the wall clock is before 2024: it was never set");
  constexpr auto kPause = std::chrono::milliseconds(2);
  const Instant began = monotonic_now();
  std::this_thread::sleep_for(kPause);
  const Duration elapsed = monotonic_now() - began;
  const Duration wall_elapsed(wall_clock_unix_ns() - wall);
  constexpr Duration kApartMax = std::chrono::seconds(1);
  if (elapsed < kPause || std::chrono::abs(elapsed - wall_elapsed) > kApartMax) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the clocks disagree: the monotonic clock advanced %.3f s, the wall clock "
                        "%.3f s",
                        to_seconds(elapsed), to_seconds(wall_elapsed)));
  }
  return std::string("clocks advance");
}

template <class Check>
NodeCheckPart part(const char* name, Check check) {
  const Instant began = monotonic_now();
  Text text = check();
  NodeCheckPart done{name, text.status(), text.ok() ? *std::move(text) : "", {}};
  done.time = monotonic_now() - began;
  return done;
}

}  // namespace

std::vector<NodeCheckPart> check_node(const NodeCheckOptions& options) {
  return {
      part("cores", check_cores),
      part("memory", [&] { return check_memory(options.memory_bytes); }),
      part("work_dir", [&] { return check_folder(options.work_dir, kDiskBytes, true); }),
      part("shm", [&] { return check_shm(options.shm_dir); }),
      part("loopback", check_loopback),
      part("clock", check_clock),
  };
}

bool node_check_passed(const std::vector<NodeCheckPart>& parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [](const NodeCheckPart& part) { return part.status.ok(); });
}

std::string node_check_sentence(const std::vector<NodeCheckPart>& parts) {
  std::vector<std::string> wrong;
  for (const NodeCheckPart& part : parts) {
    if (!part.status.ok()) wrong.emplace_back(part.status.message());
  }
  return wrong.empty() ? "nothing is wrong with it" : absl::StrJoin(wrong, "; ");
}

std::string node_check_details(const std::vector<NodeCheckPart>& parts) {
  std::vector<std::string> right;
  for (const NodeCheckPart& part : parts) {
    if (part.status.ok()) right.push_back(part.text);
  }
  return absl::StrJoin(right, "; ");
}

}  // namespace muster::trainer
