// Opens ELF files, which are untrusted: regular files only, and read instead of mapped, because
// another process may truncate them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "worker/stacks/process_map.h"

namespace muster::worker {

// Returns the build id of an ELF file as lower-case hex; empty: it has none, or is no ELF file.
std::string file_build_id(int fd);

// Opens a regular file for reading, without blocking on FIFOs and the like; returns -1 and sets
// errno on failure.
int open_regular_file(const std::string& path);

// Returns a descriptor of the file that a process has mapped; -1: it is gone. Looks it up in the
// process's own file system view; if the path leads to another file or none, by the kernel's handle
// of the mapping; else in our view. Identifies the file by `build_id`, or if that is empty by its
// inode. For [vdso] see open_vdso().
int open_module_file(const std::string& proc_root, pid_t pid, const MappedModule& module,
                     const std::string& build_id);

// Returns a descriptor of a copy of [vdso], the kernel's code that every process maps, as mapped
// here; -1: there is none.
int open_vdso();

// Reference from an ELF file to its separate debug file.
struct DebugLink {
  std::string path;      // of the file itself
  std::string build_id;  // lower-case hex; empty: none
  std::string name{};    // empty: none
  uint32_t crc = 0;      // of the debug file's bytes
};
// Returns a descriptor of the debug file, -1: there is none. Searches by build id under
// `debug_folder`/.build-id; then by name beside the file, in .debug beside it, and in its folder
// under `debug_folder`. A file found by name must have the same build id, or the CRC if there is no
// build id.
int open_debug_file(const std::string& debug_folder, const DebugLink& link);

}  // namespace muster::worker
