// Unwinds copied threads of one process with libdwfl: by .eh_frame of the modules, by .debug_frame where a file has no other, and by
// frame pointers where it has neither or the code is a JIT compiler's. What is read of modules is kept, so that the second
// sample of a process costs a few microseconds per frame.
//
// One thread at a time.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "common/stack_frame.h"
#include "worker/stacks/module_image.h"
#include "worker/stacks/process_map.h"
#include "worker/stacks/thread_copies.h"

namespace muster::worker {

class Unwinder {
 public:
  // `images` is borrowed.
  Unwinder(std::string proc_root, pid_t pid, ModuleImages* images);
  ~Unwinder();
  Unwinder(const Unwinder&) = delete;
  Unwinder& operator=(const Unwinder&) = delete;

  // Reads what the process has mapped now. false: it is gone or may not be read.
  bool refresh();
  // The same as the process tells it, for one that may not be read. Its modules are read from their files then.
  void use(ProcessMap map);

  struct Stack {
    std::vector<StackFrame> frames;  // outermost first
    bool truncated = false;          // the outermost frames are missing
  };
  // `modules` takes the modules of the frames, each once.
  Stack unwind(const ThreadCopy& thread, std::vector<StackModule>& modules);
  // One place in the code, as a frame: for threads of which no more is known.
  StackFrame frame_at(uint64_t address, std::vector<StackModule>& modules);

  const ProcessMap& map() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// Index of `module` in `modules`, where it is added if it is not there.
uint32_t module_index(const StackModule& module, std::vector<StackModule>& modules);

}  // namespace muster::worker
