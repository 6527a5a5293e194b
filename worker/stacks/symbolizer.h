// Resolves addresses in modules to function, file and line, from the symbol tables and DWARF of the
// mapped file or of its separate debug file, which is found under /usr/lib/debug by build id, or by
// name and CRC. Fetches nothing from a network.
//
// Files are untrusted. A file whose build id differs from the running code's is refused; results
// are bounded and printable; damaged DWARF costs only the symbols. For inlined code, the symbol
// names the innermost inlined function and the function that contains it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/files/user_rights.h"
#include "common/stacks/stack_frame.h"
#include "common/time/time.h"

namespace muster::worker {

struct SymbolizerOptions {
  std::string debug_folder = "/usr/lib/debug";
};

// Resolves addresses on its own threads, and caches open files.
class Symbolizer {
 public:
  explicit Symbolizer(SymbolizerOptions options = {});
  ~Symbolizer();
  Symbolizer(const Symbolizer&) = delete;
  Symbolizer& operator=(const Symbolizer&) = delete;

  // Returns one symbol per address of `addresses`, which are as in StackFrame; a symbol is empty if
  // it is unknown or was not resolved by `deadline`. `pid`: a process that has mapped the module;
  // the path is resolved in that process's mount namespace, which finds files in containers and
  // deleted files; 0: none. `user`: whose rights files are opened with (module_file.h). Users share
  // no cached files, because a user's file may have the build id of another one.
  // Returns NotFound if there is no such file or it is of another build, DataLoss if it is no ELF
  // file, and DeadlineExceeded if earlier calls still hang on that file. Because the symbolizer's
  // own threads read the files, a file system that hangs costs only the symbols of its files.
  // Blocks until `deadline` at most. Thread-safe.
  absl::StatusOr<std::vector<FrameSymbol>> symbolize(const StackModule& module,
                                                     std::span<const uint64_t> addresses, pid_t pid,
                                                     Instant deadline,
                                                     const std::optional<UserIds>& user = {});

  // Makes current and later calls return soon, with the results so far. Thread-safe.
  void stop();

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace muster::worker
