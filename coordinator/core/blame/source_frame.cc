#include "coordinator/core/blame/source_frame.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace muster::coordinator {
namespace {

// Prefixes of file names of library modules, which wait, copy or launch on behalf of a program.
constexpr std::array<std::string_view, 26> kModules = {
    "[vdso]",   "linux-vdso", "ld-linux",  "ld-2.",    "libc.",      "libc-",      "libpthread",
    "libm.",    "libm-",      "libstdc++", "libgcc_s", "libc++",     "libgomp",    "libomp",
    "libiomp",  "libgloo",    "libnccl",   "libmpi",   "libuc",      "libibverbs", "libcuda",
    "libtorch", "libc10",     "libpython", "python3",  "libjemalloc"};
// Substrings of source paths, and of Python frames, which begin with their file names.
constexpr std::array<std::string_view, 7> kFiles = {"trainer_core/comm/",
                                                    "trainer_core/parallel/comm_stream",
                                                    "trainer_core/parallel/sharded_parameters",
                                                    "/include/c++/",
                                                    "site-packages/",
                                                    "dist-packages/",
                                                    "lib/python3"};
// Prefixes of function names, for programs without debug data.
constexpr std::array<std::string_view, 4> kLibraryFunctions = {"std::", "absl::", "__", "gloo::"};
// Substrings of function names: classes of the trainer's collectives.
constexpr std::array<std::string_view, 14> kMachinery = {
    "::TransportGroup::",   "::Rounds::",           "::CommStream::",    "::CollectiveTrace::",
    "::MailboxTransport::", "::MailboxChannel::",   "::Mailbox::",       "::GlooTransport::",
    "::GlooChannel::",      "::HybridTransport::",  "::HybridChannel::", "::futex_",
    "::ProcessGroups::",    "::ShardedParameters::"};

template <size_t n>
bool begins_with_any(std::string_view text, const std::array<std::string_view, n>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view beginning) { return text.starts_with(beginning); });
}
template <size_t n>
bool has_any(std::string_view text, const std::array<std::string_view, n>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return text.find(part) != std::string_view::npos;
  });
}

// An unwinder gets no further than generated code, which has neither symbols nor unwind tables.
constexpr std::string_view kJitFrame = "[jit]";
constexpr std::string_view kGeneratedCode = "code generated at run time, such as a GEMM on the CPU";
constexpr std::string_view kOuterFramesMissing = "[outer frames left out]";

bool is_own(const StackTree& tree, uint32_t index) {
  const StackFrame& frame = tree.frames()[index];
  if (frame.module == kNoModule)
    return !frame.text.starts_with('[') && !has_any(frame.text, kFiles);
  std::string_view module = tree.modules()[frame.module].path;
  module.remove_prefix(std::min(module.size(), module.rfind('/') + 1));
  const FrameSymbol& symbol = tree.symbol(index);
  return !begins_with_any(module, kModules) && !has_any(symbol.file, kFiles) &&
         !begins_with_any(symbol.function, kLibraryFunctions) &&
         !has_any(symbol.function, kMachinery);
}

}  // namespace

std::string source_of(const StackTree& tree, const StackTree::Class& stack) {
  for (size_t i = stack.frames.size(); i-- > 0;)
    if (is_own(tree, stack.frames[i])) return tree.frame_text(stack.frames[i]);
  // No frame belongs to the program: the innermost known frame is described.
  for (size_t i = stack.frames.size(); i-- > 0;) {
    const std::string text = tree.frame_text(stack.frames[i]);
    if (text == kJitFrame) return std::string(kGeneratedCode);
    if (text != kOuterFramesMissing) return text;
  }
  return "";
}

}  // namespace muster::coordinator
