#include "trainer_core/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <absl/cleanup/cleanup.h>
#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "trainer_core/base/file_kind.h"

namespace muster::trainer {

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  // Opening a pipe must not block.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return open_failure(errno, path);
  absl::Cleanup close_file = [fd] { close(fd); };
  struct stat info {};
  if (fstat(fd, &info) != 0) return errno_status(errno, absl::StrCat("cannot examine ", path));
  if (!S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  const auto bytes = static_cast<size_t>(info.st_size);
  if (bytes == 0) return absl::WrapUnique(new MappedFile(path, {}));
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return errno_status(errno, absl::StrCat("cannot map ", path));
  return absl::WrapUnique(new MappedFile(path, {static_cast<const char*>(memory), bytes}));
}

absl::Status MappedFile::cut_off() const {
  return absl::DataLossError(
      absl::StrCat(path_, " was cut off while it was read: it had ", bytes_.size(), " bytes"));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

}  // namespace muster::trainer
