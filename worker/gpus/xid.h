// Xids: the NVIDIA driver's numbers for GPU errors, as described in NVIDIA's "XID Errors" guide.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace muster::worker {

// The cause of a GPU error, and its consequence for the node.
enum class GpuBlame {
  // the program's error, or a consequence of its end; the GPU is healthy
  kProgram,
  // a GPU error that killed its program; the next program may start on the GPU
  kGpu,
  // a GPU error that needs a reset or a repair; no program may start on the node
  kNode,
};

// The meaning of one Xid.
struct XidRule {
  uint64_t xid;
  GpuBlame blame;
  std::string_view meaning;
};

inline constexpr std::array kXidRules = {
    XidRule{13, GpuBlame::kProgram, "graphics engine exception"},
    XidRule{31, GpuBlame::kProgram, "memory page fault"},
    XidRule{43, GpuBlame::kProgram, "stopped processing"},
    XidRule{45, GpuBlame::kProgram, "clean-up of what was killed"},
    XidRule{48, GpuBlame::kNode, "double-bit memory error"},
    XidRule{61, GpuBlame::kNode, "micro-controller breakpoint"},
    XidRule{62, GpuBlame::kNode, "micro-controller halt"},
    XidRule{63, GpuBlame::kGpu, "memory row is to be remapped"},
    XidRule{64, GpuBlame::kNode, "memory row could not be remapped"},
    XidRule{74, GpuBlame::kNode, "NVLink error"},
    XidRule{79, GpuBlame::kNode, "fallen off the bus"},
    XidRule{92, GpuBlame::kGpu, "many single-bit memory errors"},
    XidRule{94, GpuBlame::kGpu, "contained memory error"},
    XidRule{95, GpuBlame::kNode, "uncontained memory error"},
    XidRule{119, GpuBlame::kNode, "GSP does not answer"},
    XidRule{120, GpuBlame::kNode, "GSP error"},
    XidRule{140, GpuBlame::kNode, "unrecovered memory error"},
};

// Returns the rule of `xid`. An Xid that is not in the table counts as kGpu: it explains a rank's
// end, but does not exclude the node.
constexpr XidRule rule_of_xid(uint64_t xid) {
  const auto* const found = std::find_if(kXidRules.begin(), kXidRules.end(),
                                         [&](const XidRule& rule) { return rule.xid == xid; });
  return found == kXidRules.end() ? XidRule{xid, GpuBlame::kGpu, ""} : *found;
}

}  // namespace muster::worker
