// Opens ELF files, which may be anything: regular files only, and read, not mapped, because somebody may cut them off meanwhile.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "worker/stacks/process_map.h"

namespace muster::worker {

// The build id of an ELF file, as lower-case hex; empty: it has none, or is no ELF file.
std::string file_build_id(int fd);

// Opens a regular file for reading, without waiting for what else may lie there; -1 with errno set.
int open_regular_file(const std::string& path);

// A descriptor of the file that a process has mapped, looked up through its own eyes, by the kernel's handle of the mapping where the path
// leads to another file or to none, or through ours; -1: it is gone. It is told by `build_id`, or where that is empty by its inode. Of
// [vdso]: see open_vdso.
int open_module_file(const std::string& proc_root, pid_t pid, const MappedModule& module,
                     const std::string& build_id);

// A descriptor of the kernel's code that every process has mapped, [vdso], as this one has it; -1: there is none.
int open_vdso();

// What a file says of the one with the debug data that was split off it.
struct DebugLink {
  std::string path;      // of the file itself
  std::string build_id;  // lower-case hex; empty: none
  std::string name{};    // empty: none
  uint32_t crc = 0;      // of the other file's bytes
};
// A descriptor of that file, -1: there is none. By build id under `debug_folder`/.build-id; else by name, beside the file, in .debug
// beside it, and in its folder under `debug_folder`, where it has to have the same build id, or the CRC where there is no id.
int open_debug_file(const std::string& debug_folder, const DebugLink& link);

}  // namespace muster::worker
