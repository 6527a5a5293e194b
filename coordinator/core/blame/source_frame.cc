#include "coordinator/core/blame/source_frame.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "common/text/has_any.h"
#include "common/text/python_frame.h"

namespace muster::coordinator {
namespace {

// Prefixes of file names of library modules, which wait, copy or launch on behalf of a program.
constexpr std::array<std::string_view, 26> kModules = {
    "[vdso]",   "linux-vdso", "ld-linux",  "ld-2.",    "libc.",      "libc-",      "libpthread",
    "libm.",    "libm-",      "libstdc++", "libgcc_s", "libc++",     "libgomp",    "libomp",
    "libiomp",  "libgloo",    "libnccl",   "libmpi",   "libuc",      "libibverbs", "libcuda",
    "libtorch", "libc10",     "libpython", "python3",  "libjemalloc"};
// Substrings of source paths.
constexpr std::array<std::string_view, 4> kFiles = {
    "trainer_core/comm/", "trainer_core/parallel/comm_stream",
    "trainer_core/parallel/sharded_parameters", "/include/c++/"};
// Prefixes of the folders of libraries that belong to the system.
constexpr std::array<std::string_view, 4> kSystemFolders = {"/usr/lib", "/lib", "/usr/local/",
                                                            "/opt/conda/"};
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
// An unwinder gets no further than generated code, which has neither symbols nor unwind tables.
constexpr std::string_view kJitFrame = "[jit]";
constexpr std::string_view kGeneratedCode = "code generated at run time, such as a GEMM on the CPU";
constexpr std::string_view kOuterFramesMissing = "[outer frames left out]";

bool is_python(const StackTree& tree, uint32_t index) {
  const StackFrame& frame = tree.frames()[index];
  return frame.module == kNoModule && !python_frame_of(frame.text).file.empty();
}

// `in_python`: the stack has Python frames. Their native frames belong to the program only if they
// are those of its own extension with a known name.
bool is_own(const StackTree& tree, uint32_t index, bool in_python) {
  const StackFrame& frame = tree.frames()[index];
  if (frame.module == kNoModule) {
    const PythonFrame python = python_frame_of(frame.text);
    return python.file.empty() ? !frame.text.starts_with('[') : !is_python_library(python.file);
  }
  std::string_view module = tree.modules()[frame.module].path;
  const FrameSymbol& symbol = tree.symbol(index);
  if (is_python_library(module)) return false;
  if (in_python && (symbol.function.empty() || begins_with_any(module, kSystemFolders)))
    return false;
  module.remove_prefix(std::min(module.size(), module.rfind('/') + 1));
  return !begins_with_any(module, kModules) && !has_any(symbol.file, kFiles) &&
         !begins_with_any(symbol.function, kLibraryFunctions) &&
         !has_any(symbol.function, kMachinery);
}

// Returns the innermost frame of a program that is an installed package, such as `python -m
// package.train`: the package of the outermost frame that belongs to one.
std::optional<uint32_t> frame_of_package(const StackTree& tree,
                                         const std::vector<uint32_t>& frames) {
  std::string_view package;
  std::optional<uint32_t> innermost;
  for (const uint32_t index : frames) {
    if (!is_python(tree, index)) continue;
    const std::string_view own = python_package_of(python_frame_of(tree.frames()[index].text).file);
    if (package.empty()) package = own;
    if (own == package) innermost = index;
  }
  return innermost;
}

}  // namespace

std::string source_of(const StackTree& tree, const StackTree::Class& stack) {
  const bool in_python =
      std::ranges::any_of(stack.frames, [&](uint32_t index) { return is_python(tree, index); });
  for (size_t i = stack.frames.size(); i-- > 0;)
    if (is_own(tree, stack.frames[i], in_python)) return tree.frame_text(stack.frames[i]);
  if (const auto index = frame_of_package(tree, stack.frames)) return tree.frame_text(*index);
  // No frame belongs to the program: the innermost known frame is described.
  for (size_t i = stack.frames.size(); i-- > 0;) {
    const std::string text = tree.frame_text(stack.frames[i]);
    if (text == kJitFrame) return std::string(kGeneratedCode);
    if (text != kOuterFramesMissing) return text;
  }
  return "";
}

}  // namespace muster::coordinator
