#include "worker/stacks/module_file.h"

#include <fcntl.h>
#include <libelf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <elfutils/libdwelf.h>
#include <zlib.h>

#include "common/process/address.h"

namespace muster::worker {
namespace {

// Returns whether the open file is the mapped one.
bool is_module(int fd, const MappedModule& module, const std::string& build_id) {
  if (!build_id.empty()) return file_build_id(fd) == build_id;
  struct stat status {};
  const uint64_t device =
      fstat(fd, &status) == 0 ? uint64_t{major(status.st_dev)} << 32 | minor(status.st_dev) : 0;
  return status.st_ino == module.inode && device == module.device;
}

uint32_t file_crc(int fd) {
  std::array<unsigned char, 65536> buffer;
  uLong crc = crc32(0, nullptr, 0);
  off_t offset = 0;
  ssize_t got = 0;
  while ((got = pread(fd, buffer.data(), buffer.size(), offset)) > 0) {
    crc = crc32(crc, buffer.data(), static_cast<uInt>(got));
    offset += got;
  }
  return static_cast<uint32_t>(crc);
}

}  // namespace

std::string file_build_id(int fd) {
  elf_version(EV_CURRENT);
  Elf* elf = elf_begin(fd, ELF_C_READ, nullptr);
  if (elf == nullptr) return "";
  absl::Cleanup end = [&] { elf_end(elf); };
  const void* id = nullptr;
  const ssize_t size = dwelf_elf_gnu_build_id(elf, &id);
  if (size <= 0) return "";
  return absl::BytesToHexString(
      absl::string_view(static_cast<const char*>(id), static_cast<size_t>(size)));
}

int open_regular_file(const std::string& path, const std::optional<UserIds>& user) {
  const FileRights rights(user);
  errno = EPERM;
  if (!rights.status().ok()) return -1;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return -1;
  struct stat status {};
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) return fd;
  close(fd);
  errno = EINVAL;
  return -1;
}

int open_module_file(const std::string& proc_root, pid_t pid, const MappedModule& module,
                     const std::string& build_id, const std::optional<UserIds>& user) {
  if (module.path == "[vdso]") return open_vdso();
  if (!absl::StartsWith(module.path, "/")) return -1;
  const std::string folder = absl::StrCat(proc_root, "/", pid);
  const std::string mapping =
      absl::StrFormat("%s/map_files/%x-%x", folder, module.start, module.first_end);
  for (const std::string& path :
       {absl::StrCat(folder, "/root", module.path), mapping, module.path}) {
    if (user && path == mapping) continue;
    const int fd = open_regular_file(path, user);
    if (fd < 0) continue;
    if (is_module(fd, module, build_id)) return fd;
    close(fd);
  }
  return -1;
}

int open_vdso() {
  const auto map = read_process_map("/proc", getpid());
  if (!map) return -1;
  const auto vdso = std::ranges::find(map->modules, "[vdso]", &MappedModule::path);
  if (vdso == map->modules.end()) return -1;
  const int fd = memfd_create("vdso", MFD_CLOEXEC);
  const auto size = static_cast<size_t>(vdso->end - vdso->start);
  if (fd < 0 || write(fd, pointer_at(vdso->start), size) == static_cast<ssize_t>(size)) {
    return fd;
  }
  close(fd);
  return -1;
}

int open_debug_file(const std::string& debug_folder, const DebugLink& link,
                    const std::optional<UserIds>& user) {
  if (link.build_id.size() > 2) {
    const int fd =
        open_regular_file(absl::StrCat(debug_folder, "/.build-id/", link.build_id.substr(0, 2), "/",
                                       link.build_id.substr(2), ".debug"),
                          user);
    if (fd >= 0) return fd;
  }
  // The name comes from the file, so it must not be a path.
  if (link.name.empty() || absl::StrContains(link.name, "/")) return -1;
  const std::string folder = link.path.substr(0, link.path.rfind('/') + 1);
  for (const std::string& path :
       {absl::StrCat(folder, link.name), absl::StrCat(folder, ".debug/", link.name),
        absl::StrCat(debug_folder, folder, link.name)}) {
    const int fd = open_regular_file(path, user);
    if (fd < 0) continue;
    struct stat status {};
    const bool is_small =
        fstat(fd, &status) == 0 && static_cast<uint64_t>(status.st_size) <= kDebugFileBytesMax;
    if (is_small &&
        (link.build_id.empty() ? file_crc(fd) == link.crc : file_build_id(fd) == link.build_id))
      return fd;
    close(fd);
  }
  return -1;
}

}  // namespace muster::worker
