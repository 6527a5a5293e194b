#include "worker/shell/programs/program_dumps.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

#include "common/files/user_rights.h"
#include "common/job/rank_evidence.h"
#include "common/text/absl_view.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kTracePrefix[] = "nccl-trace-";
constexpr char kCorePrefix[] = "cuda-core-";
constexpr char kPipeSuffix[] = ".pipe";
// Number of collectives per rank that PyTorch records; its own default since 2.6.
constexpr char kTraceEntries[] = "2000";
// Complete memory would be tens of gigabytes; registers and the position of each warp explain a
// hang.
constexpr char kCoreFlags[] =
    "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,"
    "skip_abort";  // no abort: the rank may only be slow
constexpr size_t kFolderEntriesMax = 10'000;
constexpr Duration kPollInterval = std::chrono::milliseconds(50);

std::string trace_stem(Rank rank) { return absl::StrCat(kTracePrefix, rank.value()); }
std::string core_stem(Rank rank) { return absl::StrCat(kCorePrefix, rank.value(), "-"); }

bool is_all_digits(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
}

// Returns the rank's dump names without their folder; with `pipes` the names of its pipes.
std::vector<std::string> names_of(const std::string& folder, Rank rank, bool pipes) {
  std::vector<std::string> names;
  std::error_code error;
  size_t seen = 0;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (++seen > kFolderEntriesMax || names.size() == kEvidenceFilesMax) break;
    const std::string name = it->path().filename().string();
    absl::string_view stem = name;
    if (absl::ConsumeSuffix(&stem, kPipeSuffix) != pipes) continue;
    const bool is_core = absl::ConsumePrefix(&stem, core_stem(rank)) && is_all_digits(stem);
    if (is_core || stem == trace_stem(rank)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<struct stat> regular_file(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return status;
}

// Returns false if no process reads the pipe, or it is no pipe.
bool request_pipe_dump(const std::string& pipe) {
  const FileRights rights(foreign_owner(fs::path(pipe).parent_path()));
  if (!rights.status().ok()) return false;
  const int fd = open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat status {};
  const bool requested =
      fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) && write(fd, "1", 1) == 1;
  close(fd);
  return requested;
}

}  // namespace

std::map<std::string, std::string> program_dump_variables(const std::string& folder, Rank rank) {
  const std::string traces = absl::StrCat(folder, "/", kTracePrefix);  // PyTorch adds its rank
  const std::string core = absl::StrCat(folder, "/", core_stem(rank), "%p");
  return {{"TORCH_FR_BUFFER_SIZE", kTraceEntries},
          {"TORCH_NCCL_DUMP_ON_TIMEOUT", "1"},
          {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", traces},
          {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE", traces},
          {"CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "1"},
          {"CUDA_COREDUMP_PIPE", absl::StrCat(core, kPipeSuffix)},
          {"CUDA_COREDUMP_FILE", core},
          {"CUDA_COREDUMP_GENERATION_FLAGS", kCoreFlags}};
}

bool is_program_dump(std::string_view name) {
  absl::string_view rest = av(name);
  absl::ConsumeSuffix(&rest, kPipeSuffix);
  if (absl::ConsumePrefix(&rest, kTracePrefix)) return is_all_digits(rest);
  if (!absl::ConsumePrefix(&rest, kCorePrefix)) return false;
  const std::vector<absl::string_view> numbers = absl::StrSplit(rest, '-');
  return numbers.size() == 2 && is_all_digits(numbers[0]) && is_all_digits(numbers[1]);
}

RequestedDumps request_program_dumps(const std::string& folder, Rank rank) {
  RequestedDumps requested;
  requested.unix_ns = wall_clock_unix_ns();
  for (const std::string& name : names_of(folder, rank, /*pipes=*/true)) {
    const std::string pipe = absl::StrCat(folder, "/", name);
    if (request_pipe_dump(pipe)) requested.paths.emplace_back(absl::StripSuffix(pipe, kPipeSuffix));
  }
  return requested;
}

void wait_for_program_dumps(const std::vector<RequestedDumps>& requested, Instant deadline) {
  std::vector<std::pair<std::string, int64_t>> missing;  // path and time of the request
  for (const RequestedDumps& one : requested) {
    for (const std::string& path : one.paths) missing.emplace_back(path, one.unix_ns);
  }
  std::map<std::string, off_t> sizes;
  while (!missing.empty() && monotonic_now() < deadline) {
    std::erase_if(missing, [&](const auto& entry) {
      const auto& [path, since] = entry;
      const auto status = regular_file(path);
      // File systems count in ticks: a file may seem some milliseconds older than it is.
      constexpr int64_t kTickNs = 20'000'000;
      constexpr int64_t kNsPerSecond = 1'000'000'000;
      if (!status || status->st_size == 0 ||
          status->st_mtim.tv_sec * kNsPerSecond + status->st_mtim.tv_nsec < since - kTickNs) {
        return false;
      }
      return std::exchange(sizes[path], status->st_size) == status->st_size;
    });
    if (!missing.empty()) std::this_thread::sleep_for(kPollInterval);
  }
}

std::vector<std::string> find_program_dumps(const std::string& folder, Rank rank) {
  std::vector<std::string> found;
  for (const std::string& name : names_of(folder, rank, /*pipes=*/false)) {
    const std::string path = absl::StrCat(folder, "/", name);
    const auto status = regular_file(path);
    if (!status) continue;
    const auto size = static_cast<uint64_t>(status->st_size);
    const bool is_kept = size <= kProgramDumpBytesMax;
    if (!is_kept) unlink(path.c_str());
    found.push_back(absl::StrCat(path, " (", size, " bytes", is_kept ? "" : ", removed", ")"));
  }
  return found;
}

}  // namespace muster::worker
