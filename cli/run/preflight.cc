#include "cli/run/preflight.h"

#include <stdlib.h>

#include <filesystem>
#include <utility>
#include <vector>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

#include "cli/terminal/terminal.h"
#include "cli/text/first_use.h"
#include "common/errno_status.h"
#include "common/escape.h"
#include "common/exit_code.h"
#include "common/file_write.h"

namespace muster::cli {
namespace {

// Reading the checksums of a huge data set from a slow disk takes minutes; the user can always
// press Ctrl-C.
constexpr auto kCheckTimeout = std::chrono::hours(1);
// Enough for a sentence, and for the beginning of a sanitizer's report.
constexpr size_t kReportBytesMax = 4 << 10;

// Prints the notes of a check's output ("note: …"). Returns its other lines.
std::string show_notes(const std::string& report) {
  std::vector<std::string> others;
  for (absl::string_view line : absl::StrSplit(report, '\n')) {
    if (absl::ConsumePrefix(&line, "note: ")) {
      note(escape_controls(std::string(line), Layout::kOneLine));
    } else {
      others.emplace_back(line);
    }
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
                                           const std::string& report_path, Ranks ranks) {
  const auto trainer = sibling_program("muster-trainer");
  if (!trainer.ok()) return trainer.status();
  std::vector<std::string> command = {*trainer, "check", "--config", config_path};
  if (ranks == Ranks::kHere) command.emplace_back("--here");
  auto process = ChildProcess::start({.command = std::move(command), .output_path = report_path});
  if (!process.ok()) return process.status();
  return Preflight(*std::move(process), report_path);
}

absl::Status Preflight::result() {
  const auto end =
      process_->wait(std::chrono::duration_cast<std::chrono::milliseconds>(kCheckTimeout));
  if (!end) return absl::DeadlineExceededError("the preflight check did not end");
  const std::string report = show_notes(tail_of_file(report_path_, kReportBytesMax));
  if (end->signal == 0 && end->code == 0) return absl::OkStatus();
  absl::string_view words = report;
  for (const char* prefix : {"muster-trainer check: ", "muster-trainer: "}) {
    absl::ConsumePrefix(&words, prefix);
  }
  absl::ConsumePrefix(&words, "error: ");
  if (end->signal == 0 && end->code == to_int(ExitCode::kBadInput) && !words.empty()) {
    return absl::InvalidArgumentError(words);
  }
  return absl::InternalError(absl::StrCat("the preflight check (muster-trainer check) ended with ",
                                          end->signal != 0 ? absl::StrCat("signal ", end->signal)
                                                           : absl::StrCat("exit code ", end->code),
                                          words.empty() ? "" : ": ", words));
}

absl::StatusOr<v1::JobSpec> checked_spec(const JobArguments& arguments, bool check) {
  if (arguments.is_program()) return load_program(arguments);
  auto job = load_job_and_data(arguments, check ? FirstUse::kTokenize : FirstUse::kFind);
  if (!job.ok()) return job.status();
  if (!check) return std::move(job->spec);
  if (auto status = check_config(job->spec.train_config_json()); !status.ok()) return status;
  for (const v1::Smaller& size : job->spec.smaller()) {
    const absl::Status status = check_config(size.train_config_json());
    if (status.ok()) continue;
    return absl::Status(status.code(), absl::StrCat("on ", size.nodes(), " of ", job->spec.nodes(),
                                                    " nodes (min_nodes): ", status.message()));
  }
  return std::move(job->spec);
}

}  // namespace muster::cli
