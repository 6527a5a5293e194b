// The code that a process has mapped: modules (ELF files and the vdso), and executable memory of
// JIT compilers, which belongs to no module. Reads /proc/PID/maps and the process's memory; opens
// no mapped files.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/stacks/stack_frame.h"

namespace muster::worker {

// Reads at most `size` bytes at `address` of a process's memory into `out`. Returns the number of
// bytes read.
size_t read_memory(pid_t pid, uint64_t address, void* out, size_t size);

// A mapped file as one range of addresses: from the mapping of its first byte to the end of its
// last mapping.
struct MappedModule {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t first_end = 0;  // end of the file's first mapping
  uint64_t device = 0;
  uint64_t inode = 0;
  std::string path;  // the path as the kernel prints it, including " (deleted)"

  friend bool operator==(const MappedModule&, const MappedModule&) = default;
};

// A range of executable addresses.
struct ExecutableRange {
  uint64_t start = 0;
  uint64_t end = 0;
  // index into ProcessMap::modules; -1: no file, or a file that is not mapped from its beginning
  int32_t module = -1;

  friend bool operator==(const ExecutableRange&, const ExecutableRange&) = default;
};

// The range of addresses [start, end).
struct MemoryRange {
  uint64_t start = 0;
  uint64_t end = 0;
};

// The mappings of one process.
struct ProcessMap {
  std::vector<MappedModule> modules;  // modules with code, by ascending address
  std::vector<ExecutableRange> code;  // ascending, disjoint
  std::vector<MemoryRange> writable;  // ascending, disjoint; includes the stacks

  // Returns nullptr if there is no code at `address`.
  const ExecutableRange* find(uint64_t address) const;
  // Returns the end of the writable range that contains `address`; `address` itself if there is
  // none.
  uint64_t writable_end(uint64_t address) const;
};

// Parses /proc/PID/maps; skips malformed lines.
ProcessMap parse_process_map(std::string_view maps);
// Reads the map of a process. Returns nullopt if there is no such process or access is denied. May
// block, because the kernel takes the process's memory lock.
std::optional<ProcessMap> read_process_map(const std::string& proc_root, pid_t pid);

// The contents of an ELF file's headers, as mapped in memory.
struct ModuleHeaders {
  std::string build_id;    // lower-case hex; empty: none
  uint64_t load_bias = 0;  // address in memory minus address in the file's symbols
  uint64_t bytes = 0;      // size of the ELF header and the program headers
  struct Segment {         // a program header of type PT_LOAD
    uint64_t file_offset = 0;
    uint64_t address = 0;  // address in memory
    uint64_t bytes = 0;    // size in the file
  };
  std::vector<Segment> segments;
  uint64_t unwind_header = 0;  // .eh_frame_hdr's address in memory; 0: none
  uint64_t unwind_header_bytes = 0;
};
// Reads the headers from the process's memory. Returns nullopt if the module is no ELF file of this
// machine's word size or cannot be read.
std::optional<ModuleHeaders> read_module_headers(pid_t pid, const MappedModule& module);
// Reads the headers from the file `fd` instead, for processes whose memory is not accessible.
// Returns nullopt as read_module_headers().
std::optional<ModuleHeaders> read_file_headers(int fd, const MappedModule& module);

}  // namespace muster::worker
