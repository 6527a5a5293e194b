// Unwinds copied threads of one process with libdwfl. Uses a module's .eh_frame; if there is none,
// its .debug_frame; if there is neither, or for the code of JIT compilers, frame pointers. Caches
// module data, so that the second sample of a process costs a few microseconds per frame.
//
// Called by one thread at a time.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/files/user_rights.h"
#include "common/stacks/stack_frame.h"
#include "worker/stacks/module_image.h"
#include "worker/stacks/process_map.h"
#include "worker/stacks/thread_copies.h"

namespace muster::worker {

class Unwinder {
 public:
  // Requires that `images` outlives the unwinder. `user`: the process's user, with whose rights its
  // files are opened; nullopt: this process's.
  Unwinder(std::string proc_root, pid_t pid, ModuleImages* images, std::optional<UserIds> user);
  ~Unwinder();
  Unwinder(const Unwinder&) = delete;
  Unwinder& operator=(const Unwinder&) = delete;

  // Reads the process's current mappings. Returns false if the process is gone or may not be read.
  bool refresh();
  // Uses `map`, which the process itself has reported, instead of refresh(). For processes that may
  // not be read; module data then comes from files.
  void use(ProcessMap map);

  struct Stack {
    std::vector<StackFrame> frames;  // outermost first
    bool truncated = false;          // the outermost frames are missing
  };
  // Returns the stack of a copied thread. Appends the modules of the frames to `modules`, each
  // once.
  Stack unwind(const ThreadCopy& thread, std::vector<StackModule>& modules);
  // Returns the frame of a single address, for threads of which only the program counter is known.
  StackFrame frame_at(uint64_t address, std::vector<StackModule>& modules);

  // Returns the mappings that refresh() has read or use() has set.
  const ProcessMap& map() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// Returns the index of `module` in `modules`; appends the module if it is missing.
uint32_t module_index(const StackModule& module, std::vector<StackModule>& modules);

}  // namespace muster::worker
