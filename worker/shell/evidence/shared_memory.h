// Explains SIGBUS by the size of /dev/shm. A write to memory that programs share there, such as the
// buffers of PyTorch's loaders and of NCCL, ends in SIGBUS if the file system has no room.
#pragma once

#include <cstdint>
#include <string>

namespace muster::worker {

constexpr char kSharedMemoryFolder[] = "/dev/shm";

// Returns the reason if the file system is full, or so small that it may have been: the kernel
// frees what a process has used when it ends. Returns "" otherwise. `size`, `free`: of the file
// system of `folder`, in bytes.
std::string shared_memory_text(const std::string& folder, uint64_t size, uint64_t free);
// Returns the same for a folder of this machine; "" if there is no such folder. May block in the
// file system.
std::string shared_memory_text(const std::string& folder);

}  // namespace muster::worker
