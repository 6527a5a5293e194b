#include "common/files/free_space.h"

#include <sys/statvfs.h>

#include <absl/strings/str_format.h>

namespace muster {

std::optional<uint64_t> free_space_bytes(const std::string& path) {
  struct statvfs disk {};
  if (statvfs(path.c_str(), &disk) != 0) return std::nullopt;
  return uint64_t{disk.f_bavail} * disk.f_frsize;
}

std::string missing_room(std::optional<uint64_t> free, uint64_t needed) {
  constexpr double kMiB = 1 << 20;
  if (!free || *free >= needed) return "";
  return absl::StrFormat(
      " (it takes %.1f MiB and %.1f MiB are free on that disk: %.1f MiB are missing)",
      static_cast<double>(needed) / kMiB, static_cast<double>(*free) / kMiB,
      static_cast<double>(needed - *free) / kMiB);
}

}  // namespace muster
