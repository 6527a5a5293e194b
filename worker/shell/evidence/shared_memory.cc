#include "worker/shell/evidence/shared_memory.h"

#include <sys/statvfs.h>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "worker/shell/files/disk_space.h"

namespace muster::worker {

// The size in Docker's and Kubernetes' containers, which do not set it, is 64 MiB. NCCL alone needs
// more with several GPUs.
constexpr uint64_t kSmallBytes = uint64_t{64} << 20;

std::string shared_memory_text(const std::string& folder, uint64_t size, uint64_t free) {
  constexpr char kRemedy[] = ": Docker needs --shm-size, Kubernetes an emptyDir in memory";
  const std::string mib =
      absl::StrFormat("%.4g MiB", static_cast<double>(size) / (uint64_t{1} << 20));
  if (size == 0) return "";  // without a limit
  if (free < kFullDiskBytes) return absl::StrCat(folder, " of ", mib, " is full", kRemedy);
  if (size > kSmallBytes) return "";
  return absl::StrCat(folder, " has only ", mib, ", which may have been full", kRemedy);
}

std::string shared_memory_text(const std::string& folder) {
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) return "";
  return shared_memory_text(folder, uint64_t{disk.f_blocks} * disk.f_frsize,
                            uint64_t{disk.f_bavail} * disk.f_frsize);
}

}  // namespace muster::worker
