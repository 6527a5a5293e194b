// Names of places in modules: function, file and line from the symbol tables and DWARF of the file that a process has mapped, or of
// its separate debug file (by build id, or by name and CRC, under /usr/lib/debug). Nothing is fetched from a network.
//
// Files are outside input: they are refused when they have another build id than the one that runs; what comes out is bounded and
// printable; damaged DWARF costs the names and nothing else. Of what the compiler has inlined the innermost function is named, with the
// one that it is a part of.
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

  // One symbol per address, as StackFrame counts them; an empty one where nothing is known, and for all that are left at `deadline`. `pid`:
  // a process that has the module mapped, through whose eyes the path is looked up (a container, a deleted file); 0: none.
  // NotFound: there is no such file, or it is another build's. DataLoss: it is no ELF file. DeadlineExceeded: some calls before have not come
  // back from that file. Files are read by threads of its own, so that a file system that does not answer costs the names of what lies there and
  // no more; blocks until `deadline` at most. Any thread, several at once.
  absl::StatusOr<std::vector<FrameSymbol>> symbolize(const StackModule& module,
                                                     std::span<const uint64_t> addresses, pid_t pid,
                                                     Instant deadline);

  // All calls return soon from now on, with what they have. Any thread.
  void stop();

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace muster::worker
