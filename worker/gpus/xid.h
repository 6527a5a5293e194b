// Xids: the NVIDIA driver's numbers for what has gone wrong with a GPU. One table; the numbers' meanings are those of NVIDIA's "XID Errors" guide.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace muster::worker {

// Whose fault it is that a GPU reports, and what becomes of the node.
enum class GpuBlame {
  kProgram,  // its own mistake, or what follows from its end: says nothing of the GPU
  kGpu,  // the GPU's: it has cost the program that ran on it, and the next one may be started there
  kNode,  // the GPU's, which needs a reset or a repair: nothing is to be started there
};

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

// Of one that the table does not have: it explains an end, and condemns no node.
constexpr XidRule rule_of_xid(uint64_t xid) {
  const auto* const found = std::find_if(kXidRules.begin(), kXidRules.end(),
                                         [&](const XidRule& rule) { return rule.xid == xid; });
  return found == kXidRules.end() ? XidRule{xid, GpuBlame::kGpu, ""} : *found;
}

}  // namespace muster::worker
