// The code that a process has mapped: modules (ELF files and the vdso) and executable memory that
// belongs to none (JIT compilers'). Read from /proc/PID/maps and the process's memory; opens no
// files.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/stack_frame.h"

namespace muster::worker {

// Reads at most `size` bytes of a process's memory; returns the number of bytes read.
size_t read_memory(pid_t pid, uint64_t address, void* out, size_t size);

// A mapped file as one range: from the mapping of its first byte to the end of its last mapping.
struct MappedModule {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t first_end = 0;  // end of its first mapping
  uint64_t device = 0;
  uint64_t inode = 0;
  std::string path;  // as the kernel prints it, " (deleted)" included

  friend bool operator==(const MappedModule&, const MappedModule&) = default;
};

struct ExecutableRange {
  uint64_t start = 0;
  uint64_t end = 0;
  int32_t module = -1;  // index; -1: no file, or one that is not mapped from its beginning

  friend bool operator==(const ExecutableRange&, const ExecutableRange&) = default;
};

struct MemoryRange {
  uint64_t start = 0;
  uint64_t end = 0;
};

struct ProcessMap {
  std::vector<MappedModule> modules;  // those with code, ascending
  std::vector<ExecutableRange> code;  // ascending, disjoint
  std::vector<MemoryRange> writable;  // ascending, disjoint; includes the stacks

  // Returns nullptr if there is no code at `address`.
  const ExecutableRange* find(uint64_t address) const;
  // Returns the end of the writable memory at `address`; `address` if there is none.
  uint64_t writable_end(uint64_t address) const;
};

// Parses /proc/PID/maps; skips malformed lines.
ProcessMap parse_process_map(std::string_view maps);
// Returns nullopt if there is no such process or access is denied. Takes the process's memory lock.
std::optional<ProcessMap> read_process_map(const std::string& proc_root, pid_t pid);

// The content of an ELF file's headers in memory.
struct ModuleHeaders {
  std::string build_id;    // lower-case hex; empty: none
  uint64_t load_bias = 0;  // address in memory minus address in the file's symbols
  uint64_t bytes = 0;      // the ELF header and the program headers after it
  struct Segment {         // PT_LOAD
    uint64_t file_offset = 0;
    uint64_t address = 0;  // in memory
    uint64_t bytes = 0;    // in the file
  };
  std::vector<Segment> segments;
  uint64_t unwind_header = 0;  // .eh_frame_hdr's address in memory; 0: none
  uint64_t unwind_header_bytes = 0;
};
// Returns nullopt if it is no ELF file of this machine's word size, or cannot be read.
std::optional<ModuleHeaders> read_module_headers(pid_t pid, const MappedModule& module);
// Like read_module_headers(), but from the mapped file, for processes whose memory is not
// accessible.
std::optional<ModuleHeaders> read_file_headers(int fd, const MappedModule& module);

}  // namespace muster::worker
