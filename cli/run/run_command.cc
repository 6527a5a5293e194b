#include "cli/run/run_command.h"

#include <signal.h>

#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>

namespace muster::cli {

absl::StatusOr<ChildEnd> run_command(const std::vector<std::string>& words, Duration deadline) {
  return run_child(words, {.deadline = monotonic_now() + deadline});
}

absl::StatusOr<std::string> output_of(const std::vector<std::string>& words, Duration deadline) {
  auto end = run_command(words, deadline);
  if (!end.ok()) return end.status();
  if (end->exit_code == 0) return std::move(end->output);
  absl::StripTrailingAsciiWhitespace(&end->errors);
  return absl::Status(end->exit_code == 128 + SIGTERM ? absl::StatusCode::kAborted
                                                      : absl::StatusCode::kFailedPrecondition,
                      absl::StrCat(words[0], words.size() > 1 ? " " + words[1] : "", " ended with ",
                                   end->exit_code, end->errors.empty() ? "" : ": ", end->errors));
}

}  // namespace muster::cli
