// Resolves addresses in modules to function, file and line, from the symbol tables and DWARF of the
// file that a process has mapped, or of its separate debug file (by build id, or by name and CRC,
// under /usr/lib/debug). Fetches nothing from a network.
//
// Files are untrusted: a file with another build id than the running one is refused; results are
// bounded and printable; damaged DWARF costs only the symbols. For inlined code, the symbol names
// the innermost function and the one that contains it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/stack_frame.h"
#include "common/time.h"

namespace muster::worker {

struct SymbolizerOptions {
  std::string debug_folder = "/usr/lib/debug";
};

class Symbolizer {
 public:
  explicit Symbolizer(SymbolizerOptions options = {});
  ~Symbolizer();
  Symbolizer(const Symbolizer&) = delete;
  Symbolizer& operator=(const Symbolizer&) = delete;

  // Returns one symbol per address (addresses as in StackFrame); empty if unknown or not resolved
  // by `deadline`. `pid`: a process that has the module mapped, in whose file system view the path
  // is resolved (a container, a deleted file); 0: none. Returns NotFound if there is no such file
  // or it is of another build, DataLoss if it is no ELF file, DeadlineExceeded if earlier calls
  // still hang on that file. The symbolizer's own threads read files, so a file system that hangs
  // costs only the symbols of its files; blocks until `deadline` at most. Thread-safe.
  absl::StatusOr<std::vector<FrameSymbol>> symbolize(const StackModule& module,
                                                     std::span<const uint64_t> addresses, pid_t pid,
                                                     Instant deadline);

  // Makes all calls return soon from now on, with what they have. Thread-safe.
  void stop();

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace muster::worker
