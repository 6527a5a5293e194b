#include "common/text/end_reason.h"

#include <signal.h>

#include <algorithm>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "common/text/error_family.h"
#include "common/text/program_error.h"

namespace muster {
namespace {

// Returns whether the message "NVRM: Xid (PCI:0000:3b:00): 31, pid=4001, name=python3, …" names
// another process than `pid`. The driver does not always name it.
bool is_of_other_process(std::string_view message, int pid) {
  const size_t at = message.find("pid=");
  if (pid == 0 || at == std::string_view::npos) return false;
  const std::string_view rest = message.substr(at + 4);
  const bool is_known = !rest.empty() && absl::ascii_isdigit(static_cast<unsigned char>(rest[0]));
  return is_known && !absl::StartsWith(av(rest), absl::StrCat(pid, ","));
}

// Returns whether the message, if it is about a GPU, may be about one of the rank. Its processes,
// such as loaders of data, may use them, too.
bool may_be_of_rank(std::string_view message, int pid, std::span<const std::string> gpus) {
  constexpr std::string_view kMark = "PCI:";
  const size_t at = message.find(kMark);
  if (gpus.empty() || at == std::string_view::npos) return !is_of_other_process(message, pid);
  const std::string address = absl::AsciiStrToLower(av(message.substr(at + kMark.size())));
  return std::ranges::any_of(
      gpus, [&](const std::string& gpu) { return absl::StartsWith(address, gpu); });
}

bool is_of_gpu(std::string_view name) {
  return name.starts_with("GPU") || name.starts_with("device");
}

// Returns whether an error of `kernel`'s family explains an end whose own reason is of `own`.
bool explains(const ErrorFamily& kernel, const ErrorFamily* own) {
  if (kernel.origin != ErrorOrigin::kNode) return false;
  if (is_of_gpu(kernel.name)) return own == nullptr || is_of_gpu(own->name);
  return own != nullptr && (own->name == "damaged file" || own->name == "bus error" ||
                            own->name == "input or output failed");
}

}  // namespace

bool has_reason_in_output(int signal) { return signal != SIGKILL && signal != SIGBUS; }

std::string reason_in_lines(std::span<const std::string> lines, int signal) {
  if (!has_reason_in_output(signal)) return "";
  const auto error = find_program_error(lines);
  // An exit code may have a reason that no word identifies as an error.
  const bool is_traceback = error && !error->place.empty();
  if (error && (is_traceback || signal != 0)) return to_string(*error);
  return signal != 0 || lines.empty() ? "" : lines.back();
}

std::string kernel_reason(std::string_view reason, std::span<const std::string> messages, int pid,
                          std::span<const std::string> gpus) {
  const ErrorFamily* own = find_error_family(reason);
  for (size_t i = messages.size(); i > 0; --i) {
    const std::string& message = messages[i - 1];
    const ErrorFamily* family = find_error_family(message);
    if (family != nullptr && explains(*family, own) && may_be_of_rank(message, pid, gpus))
      return message;
  }
  return "";
}

}  // namespace muster
