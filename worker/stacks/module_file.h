// Opens ELF files. The files are untrusted: only regular files are opened, and they are read
// instead of mapped, because another process may truncate a mapped file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "common/files/user_rights.h"
#include "worker/stacks/process_map.h"

namespace muster::worker {

// Returns the build id of an ELF file as lower-case hex; an empty string if the file has no build
// id or is no ELF file.
std::string file_build_id(int fd);

// Paths come from processes that may run as another user: functions with a parameter `user` open
// them with this user's rights (FileRights); nullopt: with this process's.

// Opens a regular file for reading, without blocking on FIFOs and the like; returns -1 and sets
// errno on failure.
int open_regular_file(const std::string& path, const std::optional<UserIds>& user);

// Returns a descriptor of the file that a process has mapped as `module`; -1 if the file is gone.
// Tries three ways in order: the path in the process's own mount namespace, the kernel's link to
// the mapped file (/proc/PID/map_files), and the path in our mount namespace. The link is not tried
// for another user: only root may follow it, and a process may map a program that it cannot read.
// Accepts a file only if it has the build id `build_id`, or if that is empty, the module's device
// and inode. For [vdso] see open_vdso().
int open_module_file(const std::string& proc_root, pid_t pid, const MappedModule& module,
                     const std::string& build_id, const std::optional<UserIds>& user);

// Returns a descriptor of a copy of this process's [vdso], the kernel's code that every process
// maps; -1 if there is none.
int open_vdso();

// Bound of the sections with DWARF, which are read completely. A debug build of PyTorch has more,
// and is resolved by its symbol table alone.
constexpr uint64_t kDebugFileBytesMax = uint64_t{1} << 30;

// The reference from an ELF file to its separate debug file.
struct DebugLink {
  std::string path;      // path of the ELF file
  std::string build_id;  // build id of the ELF file, lower-case hex; empty: none
  std::string name{};    // file name of the debug file; empty: none
  uint32_t crc = 0;      // CRC-32 of the debug file
};
// Returns a descriptor of the debug file; -1 if there is none. Searches by build id under
// `debug_folder`/.build-id; then by name beside the file, in .debug beside it, and in its folder
// under `debug_folder`. A file found by name must have the same build id, or the CRC if there is no
// build id. Larger files than kDebugFileBytesMax are not read.
int open_debug_file(const std::string& debug_folder, const DebugLink& link,
                    const std::optional<UserIds>& user);

}  // namespace muster::worker
