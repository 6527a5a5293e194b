// Unwinds copied threads of one process with libdwfl: by .eh_frame of the modules, by .debug_frame
// if a file has no other, and by frame pointers if it has neither or the code is a JIT compiler's.
// Caches module data, so the second sample of a process costs a few microseconds per frame.
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
  // Borrows `images`.
  Unwinder(std::string proc_root, pid_t pid, ModuleImages* images);
  ~Unwinder();
  Unwinder(const Unwinder&) = delete;
  Unwinder& operator=(const Unwinder&) = delete;

  // Reads the process's current mappings. Returns false if it is gone or may not be read.
  bool refresh();
  // Uses a map that the process itself reported, for processes that may not be read. Module data
  // then comes from files.
  void use(ProcessMap map);

  struct Stack {
    std::vector<StackFrame> frames;  // outermost first
    bool truncated = false;          // the outermost frames are missing
  };
  // Adds each module of the frames to `modules` once.
  Stack unwind(const ThreadCopy& thread, std::vector<StackModule>& modules);
  // Returns the frame of one address, for threads without further data.
  StackFrame frame_at(uint64_t address, std::vector<StackModule>& modules);

  const ProcessMap& map() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// Returns the index of `module` in `modules`, adding it if it is missing.
uint32_t module_index(const StackModule& module, std::vector<StackModule>& modules);

}  // namespace muster::worker
