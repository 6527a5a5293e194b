#include "cli/run/preflight.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

#include "cli/jobs/job_sizes.h"
#include "cli/terminal/terminal.h"
#include "cli/text/first_use.h"
#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "common/process/exit_code.h"
#include "common/text/escape.h"
#include "common/time/time.h"

namespace muster::cli {
namespace {

// Reading the checksums of a huge data set from a slow disk takes minutes; the user can always
// press Ctrl-C.
constexpr auto kCheckTimeout = std::chrono::hours(1);
// Enough for a sentence, and for the beginning of a sanitizer's report.
constexpr size_t kReportBytesMax = 4 << 10;

// The beginning of a warning that the check prints while it runs.
constexpr absl::string_view kWarning = "muster: warning: ";

// Returns the lines of a report that show_output() does not show.
std::string other_lines(const std::string& report) {
  std::vector<std::string> others;
  for (const absl::string_view line : absl::StrSplit(report, '\n')) {
    if (!absl::StartsWith(line, "note: ") && !absl::StartsWith(line, kWarning))
      others.emplace_back(line);
  }
  return absl::StrJoin(others, "\n");
}

// Checks a config that is not a file yet.
absl::Status check_config(const std::string& train_config_json) {
  std::error_code error;
  std::string folder =
      (std::filesystem::temp_directory_path(error) / "muster-check-XXXXXX").string();
  if (error || mkdtemp(folder.data()) == nullptr) {
    return errno_status(errno, absl::StrCat("a temporary folder ", folder));
  }
  const absl::Cleanup remove = [&] { std::filesystem::remove_all(folder, error); };
  const std::string config_path = folder + "/config.json";
  if (auto status = write_file_atomically(config_path, train_config_json); !status.ok())
    return status;
  auto preflight =
      Preflight::start(config_path, folder + "/check.log", Preflight::Ranks::kElsewhere);
  return preflight.ok() ? preflight->result() : preflight.status();
}

}  // namespace

absl::StatusOr<Preflight> Preflight::start(const std::string& config_path,
                                           const std::string& report_path, Ranks ranks,
                                           bool no_plan) {
  const auto trainer = sibling_program("muster-trainer");
  if (!trainer.ok()) return trainer.status();
  std::vector<std::string> command = {*trainer, "check", "--config", config_path};
  if (ranks == Ranks::kHere) command.emplace_back("--here");
  if (no_plan) command.emplace_back("--no-plan");
  auto process = ChildProcess::start({.command = std::move(command), .output_path = report_path});
  if (!process.ok()) return process.status();
  return Preflight(*std::move(process), report_path);
}

void Preflight::show_output() {
  std::ifstream file(report_path_);
  file.seekg(static_cast<std::streamoff>(shown_bytes_));
  for (std::string line; std::getline(file, line) && !file.eof();) {
    shown_bytes_ += line.size() + 1;
    absl::string_view text = line;
    if (absl::ConsumePrefix(&text, kWarning)) {
      warn(escape_controls(std::string(text), Layout::kOneLine));
    } else if (absl::ConsumePrefix(&text, "note: ")) {
      note(escape_controls(std::string(text), Layout::kOneLine));
    }
  }
}

absl::Status Preflight::result() {
  const Instant deadline = monotonic_now() + kCheckTimeout;
  auto end = process_->wait(kOutputPeriod);
  for (; !end && monotonic_now() < deadline; end = process_->wait(kOutputPeriod)) show_output();
  if (!end) return absl::DeadlineExceededError("the preflight check did not end");
  show_output();
  const std::string report = other_lines(tail_of_file(report_path_, kReportBytesMax));
  if (end->signal == 0 && end->code == 0) return absl::OkStatus();
  absl::string_view words = report;
  bool is_sentence = false;
  for (const char* prefix : {"muster-trainer check: ", "muster-trainer: "}) {
    is_sentence = absl::ConsumePrefix(&words, prefix) || is_sentence;
  }
  absl::ConsumePrefix(&words, "error: ");
  if (end->signal == 0 && end->code == to_int(ExitCode::kBadInput) && !words.empty()) {
    return absl::InvalidArgumentError(words);
  }
  if (end->signal == 0 && end->code == to_int(ExitCode::kFailure) && is_sentence)
    return absl::InternalError(words);
  return absl::InternalError(absl::StrCat("the preflight check (muster-trainer check) ended with ",
                                          end->signal != 0 ? absl::StrCat("signal ", end->signal)
                                                           : absl::StrCat("exit code ", end->code),
                                          words.empty() ? "" : ": ", words));
}

absl::Status check_all_sizes(const v1::JobSpec& spec) {
  return check_each_size(spec, check_config);
}

absl::StatusOr<v1::JobSpec> checked_spec(const JobArguments& arguments, bool check) {
  if (arguments.is_program()) return load_program(arguments);
  auto job = load_job_and_data(arguments, check ? FirstUse::kTokenize : FirstUse::kFind);
  if (!job.ok()) return job.status();
  if (!check) return std::move(job->spec);
  if (auto status = check_all_sizes(job->spec); !status.ok()) return status;
  return std::move(job->spec);
}

}  // namespace muster::cli
