#include "worker/stacks/symbolizer.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>

#include "worker/stacks/debug_file.h"
#include "worker/stacks/demangle.h"
#include "worker/stacks/module_file.h"
#include "worker/stacks/proc_files.h"
#include "worker/stacks/process_map.h"

namespace muster::worker {
namespace {

constexpr size_t kFilesKeptMax = 32;
constexpr uint64_t kFileBytesKeptMax = uint64_t{1} << 30;  // of all of them, but for the newest

// A descriptor, or -1 and why not.
struct Found {
  int fd = -1;
  bool other_build = false;
};

// Takes `fd`, which may be none.
void try_file(int fd, const std::string& build_id, Found& found) {
  if (fd < 0) return;
  if (build_id.empty() || file_build_id(fd) == build_id) {
    found.fd = fd;
    return;
  }
  found.other_build = true;
  close(fd);
}

// By the kernel's handle of the mapping, for a file without a name.
void try_mapping(const StackModule& module, pid_t pid, Found& found) {
  if (found.fd >= 0 || pid <= 0) return;
  const auto map = read_process_map(kProcRoot, pid);
  if (!map) return;
  for (const MappedModule& mapped : map->modules) {
    const auto headers = read_module_headers(pid, mapped);
    if (!headers || headers->build_id != module.build_id) continue;
    found.fd = open_module_file(kProcRoot, pid, mapped, headers->build_id);
    return;
  }
}

Found find_file(const StackModule& module, pid_t pid, const std::string& debug_folder) {
  Found found;
  if (module.path == "[vdso]") try_file(open_vdso(), module.build_id, found);
  const std::string path(absl::StripSuffix(module.path, " (deleted)"));
  if (!path.starts_with('/')) return found;
  if (pid > 0) {
    const std::string seen = absl::StrCat(kProcRoot, "/", pid, "/root", path);
    try_file(open_regular_file(seen), module.build_id, found);
  }
  if (found.fd < 0) try_file(open_regular_file(path), module.build_id, found);
  if (module.build_id.empty()) return found;
  try_mapping(module, pid, found);
  // A debug file has the symbols, too.
  if (found.fd < 0)
    found.fd = open_debug_file(debug_folder, {.path = path, .build_id = module.build_id});
  return found;
}

}  // namespace

class Symbolizer::Impl {
 public:
  explicit Impl(SymbolizerOptions options) : options_(std::move(options)) {}

  absl::StatusOr<std::vector<FrameSymbol>> symbolize(const StackModule& module,
                                                     std::span<const uint64_t> addresses, pid_t pid,
                                                     Instant deadline) {
    std::vector<FrameSymbol> symbols(addresses.size());
    for (size_t i = 0; i < addresses.size() && !stopped_ && monotonic_now() < deadline; ++i) {
      // For one place at a time: who wants a few names waits for no list of thousands.
      const std::lock_guard lock(mutex_);
      const auto file = open(module, pid);
      if (!file.ok()) return file.status();
      symbols[i] = (*file)->symbol(addresses[i], deadline);
    }
    return symbols;
  }

  void stop() { stopped_ = true; }

 private:
  struct Kept {
    StackModule module;
    std::unique_ptr<DebugFile> file;
  };

  absl::StatusOr<DebugFile*> open(const StackModule& module, pid_t pid) {
    const auto known = std::ranges::find_if(files_, [&](const Kept& kept) {
      return module.build_id.empty() ? kept.module == module
                                     : kept.module.build_id == module.build_id;
    });
    if (known != files_.end()) {
      files_.splice(files_.begin(), files_, known);
      return files_.front().file.get();
    }
    const std::string shown = bounded_text(module.path, kModulePathBytesMax);
    const Found found = find_file(module, pid, options_.debug_folder);
    if (found.fd < 0) {
      return absl::NotFoundError(found.other_build
                                     ? absl::StrCat(shown,
                                                    " was replaced: the file there is not "
                                                    "the one that runs (build id ",
                                                    bounded_text(module.build_id, 128), ")")
                                     : absl::StrCat("no file ", shown));
    }
    auto file = DebugFile::open(found.fd, module.path, options_.debug_folder);
    if (file == nullptr) return absl::DataLossError(absl::StrCat(shown, " is no ELF file"));
    files_.push_front({.module = module, .file = std::move(file)});
    forget_oldest();
    return files_.front().file.get();
  }

  void forget_oldest() {
    uint64_t bytes = 0;
    for (const Kept& kept : files_) bytes += kept.file->bytes();
    while (files_.size() > 1 && (files_.size() > kFilesKeptMax || bytes > kFileBytesKeptMax)) {
      bytes -= files_.back().file->bytes();
      files_.pop_back();
    }
  }

  const SymbolizerOptions options_;
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  std::list<Kept> files_;  // the last used first
};

Symbolizer::Symbolizer(SymbolizerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
Symbolizer::~Symbolizer() = default;

absl::StatusOr<std::vector<FrameSymbol>> Symbolizer::symbolize(const StackModule& module,
                                                               std::span<const uint64_t> addresses,
                                                               pid_t pid, Instant deadline) {
  return impl_->symbolize(module, addresses, pid, deadline);
}

void Symbolizer::stop() { impl_->stop(); }

}  // namespace muster::worker
