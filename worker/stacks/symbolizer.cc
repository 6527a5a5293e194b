#include "worker/stacks/symbolizer.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <list>
#include <mutex>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>

#include "worker/stacks/debug_file.h"
#include "worker/stacks/demangle.h"
#include "worker/stacks/lone_thread.h"
#include "worker/stacks/module_file.h"
#include "worker/stacks/proc_files.h"
#include "worker/stacks/process_map.h"

namespace muster::worker {
namespace {

// Threads per file: one reads, the others wait for it, or all for a file system that hangs.
constexpr int kReadersMax = 4;
constexpr size_t kFilesKeptMax = 32;
constexpr uint64_t kFileBytesKeptMax = uint64_t{1} << 30;  // limit for all files except the newest

// A descriptor, or -1 and the reason.
struct Found {
  int fd = -1;
  bool other_build = false;
};

// Takes ownership of `fd`, which may be -1.
void try_file(int fd, const std::string& build_id, Found& found) {
  if (fd < 0) return;
  if (build_id.empty() || file_build_id(fd) == build_id) {
    found.fd = fd;
    return;
  }
  found.other_build = true;
  close(fd);
}

// Opens a file without a name by the kernel's handle of the mapping.
void try_mapping(const StackModule& module, pid_t pid, const std::optional<UserIds>& user,
                 Found& found) {
  if (found.fd >= 0 || pid <= 0) return;
  const auto map = read_process_map(kProcRoot, pid);
  if (!map) return;
  for (const MappedModule& mapped : map->modules) {
    const auto headers = read_module_headers(pid, mapped);
    if (!headers || headers->build_id != module.build_id) continue;
    found.fd = open_module_file(kProcRoot, pid, mapped, headers->build_id, user);
    return;
  }
}

Found find_file(const StackModule& module, pid_t pid, const std::string& debug_folder,
                const std::optional<UserIds>& user) {
  Found found;
  if (module.path == "[vdso]") try_file(open_vdso(), module.build_id, found);
  const std::string path(absl::StripSuffix(module.path, " (deleted)"));
  if (!path.starts_with('/')) return found;
  if (pid > 0) {
    const std::string seen = absl::StrCat(kProcRoot, "/", pid, "/root", path);
    try_file(open_regular_file(seen, user), module.build_id, found);
  }
  if (found.fd < 0) try_file(open_regular_file(path, user), module.build_id, found);
  if (module.build_id.empty()) return found;
  try_mapping(module, pid, user, found);
  // A debug file has the symbols, too.
  if (found.fd < 0)
    found.fd = open_debug_file(debug_folder, {.path = path, .build_id = module.build_id}, user);
  return found;
}

}  // namespace

// Shared with the threads that read files, which a file system may block forever.
class Symbolizer::Impl : public std::enable_shared_from_this<Symbolizer::Impl> {
 public:
  explicit Impl(SymbolizerOptions options) : options_(std::move(options)) {}

  absl::StatusOr<std::vector<FrameSymbol>> symbolize(const StackModule& module,
                                                     std::span<const uint64_t> addresses, pid_t pid,
                                                     Instant deadline,
                                                     const std::optional<UserIds>& user) {
    const auto kept = keep(module, user);
    if (kept == nullptr) {
      return absl::DeadlineExceededError(absl::StrCat(
          bounded_text(module.path, kModulePathBytesMax), " is being read for too long"));
    }
    const auto wanted = std::make_shared<Wanted>();
    wanted->module = module;
    wanted->addresses.assign(addresses.begin(), addresses.end());
    wanted->symbols.resize(addresses.size());
    if (!start_lone_thread([self = shared_from_this(), kept, wanted, pid, deadline] {
          self->read(*kept, *wanted, pid, deadline);
        })) {
      const std::lock_guard lock(mutex_);
      --kept->readers;
      return absl::ResourceExhaustedError("no thread to read names with");
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::max(deadline - monotonic_now(), Duration::zero()),
                      [&] { return wanted->is_done || stopped_; });
    if (!wanted->status.ok()) return wanted->status;
    return wanted->symbols;
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
  }

 private:
  struct CachedModule {
    StackModule module;
    std::optional<UserIds> user;
    std::mutex reading;  // held while the file is in use
    std::unique_ptr<DebugFile> file;
    std::atomic<uint64_t> bytes{0};
    int readers = 0;
  };
  // The request of one call and, guarded by mutex_, its result.
  struct Wanted {
    StackModule module;
    std::vector<uint64_t> addresses;
    std::vector<FrameSymbol> symbols;
    absl::Status status;
    bool is_done = false;
  };

  // Returns null if the file has the maximum number of readers.
  std::shared_ptr<CachedModule> keep(const StackModule& module,
                                     const std::optional<UserIds>& user) {
    const std::lock_guard lock(mutex_);
    const auto known = std::ranges::find_if(files_, [&](const auto& kept) {
      return kept->user == user &&
             (module.build_id.empty() ? kept->module == module
                                      : kept->module.build_id == module.build_id);
    });
    if (known != files_.end()) {
      files_.splice(files_.begin(), files_, known);
    } else {
      forget_oldest();
      files_.push_front(std::make_shared<CachedModule>());
      files_.front()->module = module;
      files_.front()->user = user;
    }
    if (files_.front()->readers == kReadersMax) return nullptr;
    ++files_.front()->readers;
    return files_.front();
  }

  void read(CachedModule& kept, Wanted& wanted, pid_t pid, Instant deadline) {
    absl::Status status;
    for (size_t i = 0; i < wanted.addresses.size() && status.ok() && may_continue(deadline); ++i) {
      // Locks per address, so that a request for a few symbols does not wait for a list of
      // thousands.
      const std::lock_guard reading(kept.reading);
      status = open(kept, wanted.module, pid);
      if (!status.ok()) break;
      FrameSymbol symbol = kept.file->symbol(wanted.addresses[i], deadline);
      const std::lock_guard lock(mutex_);
      wanted.symbols[i] = std::move(symbol);
    }
    {
      const std::lock_guard lock(mutex_);
      wanted.status = std::move(status);
      wanted.is_done = true;
      --kept.readers;
    }
    changed_.notify_all();
  }

  bool may_continue(Instant deadline) {
    const std::lock_guard lock(mutex_);
    return !stopped_ && monotonic_now() < deadline;
  }

  // Uses the path of this call: the path of an earlier file with the same build id may be gone.
  absl::Status open(CachedModule& kept, const StackModule& module, pid_t pid) const {
    if (kept.file != nullptr) return absl::OkStatus();
    const std::string shown = bounded_text(module.path, kModulePathBytesMax);
    const Found found = find_file(module, pid, options_.debug_folder, kept.user);
    if (found.fd < 0) {
      return absl::NotFoundError(found.other_build
                                     ? absl::StrCat(shown,
                                                    " was replaced: the file there is not "
                                                    "the one that runs (build id ",
                                                    bounded_text(module.build_id, 128), ")")
                                     : absl::StrCat("no file ", shown));
    }
    kept.file = DebugFile::open(found.fd, module.path, options_.debug_folder, kept.user);
    if (kept.file == nullptr) return absl::DataLossError(absl::StrCat(shown, " is no ELF file"));
    kept.bytes = kept.file->bytes();
    return absl::OkStatus();
  }

  // Evicts a file. Files being read stay: their readers are counted there.
  void forget_oldest() {
    uint64_t bytes = 0;
    for (const auto& kept : files_) bytes += kept->bytes;
    for (auto kept = files_.end();
         kept != files_.begin() && (files_.size() >= kFilesKeptMax || bytes > kFileBytesKeptMax);) {
      if (const auto oldest = --kept; (*oldest)->readers == 0) {
        bytes -= (*oldest)->bytes;
        kept = files_.erase(oldest);
      }
    }
  }

  const SymbolizerOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::list<std::shared_ptr<CachedModule>> files_;  // most recently used first
};

Symbolizer::Symbolizer(SymbolizerOptions options)
    : impl_(std::make_shared<Impl>(std::move(options))) {}
Symbolizer::~Symbolizer() { stop(); }

absl::StatusOr<std::vector<FrameSymbol>> Symbolizer::symbolize(const StackModule& module,
                                                               std::span<const uint64_t> addresses,
                                                               pid_t pid, Instant deadline,
                                                               const std::optional<UserIds>& user) {
  return impl_->symbolize(module, addresses, pid, deadline, user);
}

void Symbolizer::stop() { impl_->stop(); }

}  // namespace muster::worker
