// The part of an ELF file that unwinding needs, copied from the memory of a process that has it
// mapped: headers, .eh_frame_hdr and .eh_frame. The file itself is not opened, because it may be
// deleted, replaced, truncated, in another mount namespace or on a file system that hangs. Ranks
// that run the same code share one copy.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "worker/stacks/process_map.h"

namespace muster::worker {

// A copy of parts of an ELF file. data()[i] is the file's byte i; parts that were not copied take
// no memory and read as zeros.
class ModuleImage {
 public:
  // Copies the module from the memory of `pid`. Returns nullptr if the module has no .eh_frame_hdr
  // or cannot be read.
  static std::shared_ptr<const ModuleImage> copy(pid_t pid, const ModuleHeaders& headers);
  ~ModuleImage();
  ModuleImage(const ModuleImage&) = delete;
  ModuleImage& operator=(const ModuleImage&) = delete;

  const char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  ModuleImage(char* data, size_t size) : data_(data), size_(size) {}

  bool fill(pid_t pid, const ModuleHeaders& headers);
  bool copy_range(pid_t pid, const ModuleHeaders& headers, uint64_t address, uint64_t size);
  bool copy_frames(pid_t pid, const ModuleHeaders& headers, uint64_t address);

  char* const data_;
  const size_t size_;
};

// A cache of the images that are in use, by the process's user and the build id: another user's
// image may claim any build id. Thread-safe.
class ModuleImages {
 public:
  // Returns the cached image of the user with the headers' build id, or a new copy; nullptr as
  // ModuleImage::copy().
  std::shared_ptr<const ModuleImage> get(pid_t pid, uid_t user, const ModuleHeaders& headers);

 private:
  std::mutex mutex_;
  std::map<std::pair<uid_t, std::string>, std::weak_ptr<const ModuleImage>> images_;
};

}  // namespace muster::worker
