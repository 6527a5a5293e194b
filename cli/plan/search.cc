#include "cli/plan/search.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "cli/plan/forecast.h"
#include "cli/plan/plan_comparison.h"
#include "cli/plan/search_view.h"
#include "cli/run/exec_trainer.h"
#include "cli/run/interrupts.h"
#include "cli/terminal/child_process.h"
#include "cli/terminal/output.h"
#include "cli/terminal/progress_bar.h"
#include "cli/terminal/terminal.h"
#include "common/text/nearest.h"
#include "common/text/with_commas.h"
#include "jobspec/mesh/mesh_keys.h"
#include "trainer_core/base/setting_space.h"

namespace muster::cli {
namespace {

constexpr int kExitInterrupted = 130;
constexpr int kPollMs = 100;

// The lines that `muster-trainer plan --search` has written so far.
class TrainerOutput {
 public:
  explicit TrainerOutput(std::string path) : file_(path, std::ios::binary) {}

  // Reads new lines. Returns the newest progress; keeps the result and the errors.
  std::optional<nlohmann::json> read() {
    std::optional<nlohmann::json> progress;
    file_.clear();
    std::array<char, 1 << 16> bytes;
    while (file_.read(bytes.data(), bytes.size()) || file_.gcount() > 0)
      text_.append(bytes.data(), static_cast<size_t>(file_.gcount()));
    for (size_t end; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1)) {
      const std::string line = text_.substr(0, end);
      auto parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!parsed.is_object()) {
        absl::StrAppend(&errors_, line, "\n");
      } else if (parsed.contains("rows")) {
        result_ = std::move(parsed);
      } else {
        progress = std::move(parsed);
      }
    }
    return progress;
  }
  const nlohmann::json& result() const { return result_; }
  std::string error() const {
    constexpr std::string_view kWho = "muster-trainer plan: ";
    const std::string text(absl::StripAsciiWhitespace(errors_));
    return absl::StartsWith(text, kWho.data()) ? text.substr(kWho.size()) : text;
  }

 private:
  std::ifstream file_;
  std::string text_;
  std::string errors_;
  nlohmann::json result_;
};

Progress progress_of(const nlohmann::json& line) {
  const double planned = line.value("planned", 0.0), limit = line.value("limit", 1.0);
  return {.label = "searching",
          .fraction = planned / limit,
          .note = absl::StrCat(with_commas(line.value("planned", int64_t{0})), " planned, ",
                               with_commas(line.value("fitting", int64_t{0})), " fit")};
}

// Runs the trainer's search. Returns its result, Cancelled after a second Ctrl-C.
absl::StatusOr<nlohmann::json> run_trainer(const std::vector<std::string>& words) {
  const auto interrupts = Interrupts::block();
  if (!interrupts.ok()) return interrupts.status();
  const auto path = in_memory_file("");
  if (!path.ok()) return path.status();
  auto child = ChildProcess::start({.command = words, .output_path = *path});
  if (!child.ok()) return child.status();
  TrainerOutput output(*path);
  Output errors(STDERR_FILENO);
  std::optional<ProgressBar> bar;
  if (isatty(STDERR_FILENO) == 1) bar.emplace(errors, "search", monotonic_now());
  std::optional<ChildExit> end;
  for (int requests = 0; !end;) {
    std::array<pollfd, 2> events = {
        {{(*child)->pidfd(), POLLIN, 0}, {(*interrupts)->fd(), POLLIN, 0}}};
    poll(events.data(), events.size(), kPollMs);
    end = (*child)->wait(std::chrono::milliseconds(0));
    const auto progress = output.read();
    if (progress && bar) bar->update(progress_of(*progress), monotonic_now());
    const int now = (*interrupts)->take();
    if (now > 1) return absl::CancelledError("interrupted");
    if (now > requests) (*child)->signal(SIGINT);
    requests = now;
  }
  output.read();
  bar.reset();
  (*interrupts)->release();
  if (end->signal == 0 && end->code == 0 && output.result().is_object()) return output.result();
  if (end->signal == SIGINT) return absl::CancelledError("interrupted before the search began");
  if (end->signal == 0 && end->code == 2) return absl::InvalidArgumentError(output.error());
  return absl::InternalError(
      absl::StrCat("muster-trainer plan ended with ", end->signal != 0 ? "signal " : "exit code ",
                   end->signal != 0 ? end->signal : end->code, ": ", output.error()));
}

absl::StatusOr<std::vector<std::string>> trainer_words(const SearchArguments& search,
                                                       const PlannedJob& planned) {
  const jobspec::Topology& topology = planned.machines.topology;
  ForecastOptions options{.machine = step_machine(topology, planned.calibration)};
  options.keeps_global_batch = planned.keeps_global_batch;
  auto words = plan_words(trainer::to_json(planned.job.train).dump(), topology, options);
  if (!words.ok()) return words.status();
  words->insert(words->end(), {"--search", absl::StrCat(search.limit)});
  if (!search.keep.empty())
    words->insert(words->end(), {"--keep", absl::StrJoin(search.keep, ",")});
  return words;
}

// Returns a setting of the trainer's result as the command line with its words gives it; nullopt if
// that has other settings: words of the user's determine a key of the row.
absl::StatusOr<std::optional<FoundSetting>> resolve_row(const nlohmann::json& row,
                                                        const JobArguments& job,
                                                        const Planner& planner,
                                                        const PlanPrices& prices) {
  JobArguments arguments = job;
  for (const auto& [key, value] : row["changes"].items())
    arguments.overrides.push_back(absl::StrCat(key, "=", value.get<std::string>()));
  const auto planned = planner.resolve(std::move(arguments));
  if (absl::IsInvalidArgument(planned.status())) return std::nullopt;
  if (!planned.ok()) return planned.status();
  for (const auto& [key, value] : trainer::setting_keys(planned->job.train))
    if (row["keys"].value(key, std::string()) != value) return std::nullopt;
  nlohmann::json forecast = row["memory"];
  forecast["time"] = row["time"];
  return FoundSetting{
      .line = row["line"].get<std::string>(),
      .changes = row["changes"],
      .mesh = planned->job.mesh.to_string(),
      .sequences = jobspec::global_batch_size(planned->job.mesh, planned->job.train),
      .memory = row["memory"],
      .figures = step_figures(planned->job, planned->machines, forecast, prices)};
}

absl::StatusOr<FoundSettings> found_settings(const nlohmann::json& result, int64_t limit,
                                             const JobArguments& job, const Planner& planner,
                                             const PlanPrices& prices) {
  FoundSettings found{.planned = result["planned"].get<size_t>(),
                      .fitting = result["fitting"].get<size_t>(),
                      .limit = limit,
                      .is_complete = result["complete"].get<bool>(),
                      .is_interrupted = result["interrupted"].get<bool>()};
  auto own = resolve_row(result["own"], job, planner, prices);
  if (!own.ok()) return own.status();
  if (!*own) return absl::InternalError("the search returned other settings than the job's own");
  found.own = **std::move(own);
  size_t left_out = 0;
  for (const auto& row : result["rows"]) {
    auto setting = resolve_row(row, job, planner, prices);
    if (!setting.ok()) return setting.status();
    if (*setting) {
      found.rows.push_back(**std::move(setting));
    } else {
      ++left_out;
    }
  }
  if (left_out > 0)
    warn(absl::StrCat(left_out,
                      " settings are left out: keys or flags of this command line "
                      "contradict theirs"));
  return found;
}

}  // namespace

void add_search_options(CLI::App& command, SearchArguments& arguments) {
  command.add_flag(
      "--search", arguments.is_wanted,
      "Search mesh, batch, accumulation, remat policy, type of the moments and "
      "zero_stage; print the settings\nthat no other one beats in both memory and speed");
  command
      .add_option_function<int64_t>(
          "--search-limit",
          [&arguments](const int64_t& limit) {
            arguments.limit = limit;
            arguments.has_limit = true;
          },
          "Settings that --search plans at most. Default: 500")
      ->type_name("N");
  command
      .add_option("--keep", arguments.keep,
                  "Keys that --search does not change, such as per_device_batch_size")
      ->delimiter(',')
      ->type_name("KEY,KEY,…");
}

absl::Status check_search_arguments(const SearchArguments& arguments) {
  if (!arguments.is_wanted && (arguments.has_limit || !arguments.keep.empty()))
    return absl::InvalidArgumentError(absl::StrCat(
        arguments.has_limit ? "--search-limit" : "--keep", " has an effect with --search only"));
  if (arguments.limit < 1 || arguments.limit > trainer::kSearchPlansMax)
    return absl::InvalidArgumentError(absl::StrCat(
        "--search-limit ", arguments.limit, ": must be from 1 to ", trainer::kSearchPlansMax));
  const std::vector<std::string>& known = trainer::searched_keys();
  const std::vector<std::string_view> names(known.begin(), known.end());
  for (const std::string& key : arguments.keep) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const std::string_view near = nearest_name(key, names);
    return absl::InvalidArgumentError(
        absl::StrCat("--keep ", key, ": the search does not change this key; ",
                     near.empty() ? absl::StrCat("it changes ", absl::StrJoin(known, ", "))
                                  : absl::StrCat("did you mean ", std::string(near), "?")));
  }
  return absl::OkStatus();
}

int search_plans(const SearchArguments& search, const JobArguments& job, const Planner& planner,
                 const PlanPrices& prices, bool json) {
  const auto planned = planner.resolve(job);
  if (!planned.ok()) return fail(planned.status());
  for (const std::string& warning : planned->job.warnings) warn(warning);
  const auto words = trainer_words(search, *planned);
  if (!words.ok()) return fail(words.status());
  const auto result = run_trainer(*words);
  if (absl::IsCancelled(result.status())) return kExitInterrupted;
  if (!result.ok()) return fail(result.status());
  const auto found = found_settings(*result, search.limit, job, planner, prices);
  if (!found.ok()) return fail(found.status());
  if (found->rows.empty() && !found->is_interrupted) {
    return fail(absl::InvalidArgumentError(
        absl::StrCat("none of the ", found->planned, " planned settings fits in the memory of ",
                     planned->machines.topology.device,
                     found->is_complete ? "; use more devices"
                                        : "; use more devices, or a higher --search-limit")));
  }
  int code = 0;
  if (json) {
    code = print_result(to_json(*found).dump(2) + "\n");
  } else if (!found->rows.empty()) {
    code = print_result(describe_search(*found));
  }
  if (code != 0 || !found->is_interrupted) return code;
  note(absl::StrCat("interrupted after ", found->planned, " of at most ", search.limit,
                    " settings; ",
                    found->rows.empty() ? "none of them fits" : "these are the best of them"));
  return kExitInterrupted;
}

}  // namespace muster::cli
