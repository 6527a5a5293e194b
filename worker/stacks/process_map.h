// What code a process has mapped: modules (ELF files and the vdso) and executable memory that belongs to none (JIT compilers').
// Read from /proc/PID/maps and the process' memory; files are not opened.
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

// At most `size` bytes of a process' memory; the number that could be read.
size_t read_memory(pid_t pid, uint64_t address, void* out, size_t size);

// A file that is mapped as one: from the mapping of its first byte to the end of its last one.
struct MappedModule {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t first_end = 0;  // of its first mapping
  uint64_t device = 0;
  uint64_t inode = 0;
  std::string path;  // as the kernel prints it, " (deleted)" included

  friend bool operator==(const MappedModule&, const MappedModule&) = default;
};

struct ExecutableRange {
  uint64_t start = 0;
  uint64_t end = 0;
  int32_t module = -1;  // index; -1: of no file, or of one that is not mapped from its beginning

  friend bool operator==(const ExecutableRange&, const ExecutableRange&) = default;
};

struct MemoryRange {
  uint64_t start = 0;
  uint64_t end = 0;
};

struct ProcessMap {
  std::vector<MappedModule> modules;  // with code, growing
  std::vector<ExecutableRange> code;  // growing, disjoint
  std::vector<MemoryRange> writable;  // the same: stacks are among them

  // nullptr: no code is there.
  const ExecutableRange* find(uint64_t address) const;
  // Where the writable memory at `address` ends; `address` where there is none.
  uint64_t writable_end(uint64_t address) const;
};

// Of the text of /proc/PID/maps. Lines that are none are left out.
ProcessMap parse_process_map(std::string_view maps);
// nullopt: there is no such process, or it may not be read. Takes the process' memory lock.
std::optional<ProcessMap> read_process_map(const std::string& proc_root, pid_t pid);

// What an ELF file's headers, as they are in memory, say of it.
struct ModuleHeaders {
  std::string build_id;    // lower-case hex; empty: none
  uint64_t load_bias = 0;  // address in memory minus address in the file's symbols
  uint64_t bytes = 0;      // the ELF header and the program headers behind it
  struct Segment {         // PT_LOAD
    uint64_t file_offset = 0;
    uint64_t address = 0;  // in memory
    uint64_t bytes = 0;    // that come from the file
  };
  std::vector<Segment> segments;
  uint64_t unwind_header = 0;  // .eh_frame_hdr's address in memory; 0: none
  uint64_t unwind_header_bytes = 0;
};
// nullopt: it is no ELF file of this machine's word size, or cannot be read.
std::optional<ModuleHeaders> read_module_headers(pid_t pid, const MappedModule& module);
// The same from the file that is mapped, for a process whose memory may not be read.
std::optional<ModuleHeaders> read_file_headers(int fd, const MappedModule& module);

}  // namespace muster::worker
