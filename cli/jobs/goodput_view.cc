#include "cli/jobs/goodput_view.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "cli/terminal/terminal.h"
#include "daemon/json/goodput_json.h"

namespace muster::cli {
namespace {

constexpr std::string_view kNoCause = "none";
constexpr size_t kCausesOnALine = 4;

double seconds_of(int64_t ns) { return static_cast<double>(ns) / 1e9; }

// Recoveries take seconds, so that short times have tenths.
std::string time_text(int64_t ns) {
  constexpr double kTenthsBelow = 10;
  const double seconds = seconds_of(ns);
  return seconds < kTenthsBelow ? absl::StrFormat("%.1fs", seconds) : format_duration(seconds);
}

void sort_losses(v1::Goodput& goodput) {
  std::stable_sort(
      goodput.mutable_losses()->begin(), goodput.mutable_losses()->end(),
      [](const v1::Goodput::Loss& a, const v1::Goodput::Loss& b) { return a.ns() > b.ns(); });
}

// Returns the losses by cause, the largest first. A loss without a fault is listed by its activity.
std::vector<std::pair<std::string, int64_t>> by_cause(const v1::Goodput& goodput) {
  std::map<std::string, int64_t> sums;
  for (const v1::Goodput::Loss& loss : goodput.losses())
    sums[loss.cause() == kNoCause ? loss.what() : loss.cause()] += loss.ns();
  std::vector<std::pair<std::string, int64_t>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return sorted;
}

std::string causes_text(const v1::Goodput& goodput) {
  std::vector<std::string> parts;
  for (const auto& [cause, ns] : by_cause(goodput)) {
    if (parts.size() == kCausesOnALine) break;
    parts.push_back(absl::StrCat(shown(cause), " ", time_text(ns)));
  }
  return absl::StrJoin(parts, ", ");
}

std::vector<std::string> row_of(std::string id, std::string name, std::string state,
                                const v1::Goodput& goodput) {
  const int64_t lost = goodput.wall_ns() - goodput.productive_ns();
  return {std::move(id),
          std::move(name),
          std::move(state),
          goodput_percent(goodput),
          goodput.wall_ns() > 0 ? time_text(goodput.wall_ns()) : "-",
          time_text(goodput.queued_ns()),
          goodput.wall_ns() > 0 ? time_text(lost) : "-",
          causes_text(goodput)};
}

std::string losses_table(const v1::Goodput& goodput) {
  std::map<std::string, std::map<std::string, int64_t>> cells;  // by cause and activity
  std::map<std::string, int64_t> causes, whats;
  for (const v1::Goodput::Loss& loss : goodput.losses()) {
    cells[loss.cause()][loss.what()] += loss.ns();
    causes[loss.cause()] += loss.ns();
    whats[loss.what()] += loss.ns();
  }
  const auto sorted = [](const std::map<std::string, int64_t>& sums) {
    std::vector<std::pair<std::string, int64_t>> list(sums.begin(), sums.end());
    std::stable_sort(list.begin(), list.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    return list;
  };
  std::vector<std::vector<std::string>> rows = {{"LOST AFTER", "TOTAL"}};
  for (const auto& [what, ns] : sorted(whats)) rows[0].push_back(absl::AsciiStrToUpper(what));
  for (const auto& [cause, ns] : sorted(causes)) {
    rows.push_back({cause == kNoCause ? "no fault" : cause, time_text(ns)});
    for (const auto& [what, unused] : sorted(whats)) {
      const int64_t cell = cells[cause][what];
      rows.back().push_back(cell > 0 ? time_text(cell) : "-");
    }
  }
  return format_table(std::move(rows));
}

}  // namespace

std::string goodput_percent(const v1::Goodput& goodput) {
  return goodput.wall_ns() > 0 ? absl::StrFormat("%.1f%%", 100 * daemon::goodput_ratio(goodput))
                               : "-";
}

std::string goodput_line(const v1::Goodput& goodput) {
  if (goodput.wall_ns() <= 0) return "";
  const std::string lost = causes_text(goodput);
  return absl::StrCat("goodput ", goodput_percent(goodput), " of ", time_text(goodput.wall_ns()),
                      lost.empty() ? "" : "; lost: ", lost);
}

v1::Goodput goodput_of_all(const std::vector<v1::Job>& jobs) {
  v1::Goodput all;
  std::map<std::pair<std::string, std::string>, int64_t> losses;
  for (const v1::Job& job : jobs) {
    all.set_queued_ns(all.queued_ns() + job.goodput().queued_ns());
    all.set_wall_ns(all.wall_ns() + job.goodput().wall_ns());
    all.set_productive_ns(all.productive_ns() + job.goodput().productive_ns());
    for (const v1::Goodput::Loss& loss : job.goodput().losses())
      losses[{loss.cause(), loss.what()}] += loss.ns();
  }
  for (const auto& [key, ns] : losses) {
    v1::Goodput::Loss& loss = *all.add_losses();
    loss.set_cause(key.first);
    loss.set_what(key.second);
    loss.set_ns(ns);
  }
  sort_losses(all);
  return all;
}

std::string describe_goodput(const std::vector<v1::Job>& jobs) {
  std::vector<std::vector<std::string>> rows = {
      {"JOB", "NAME", "STATE", "GOODPUT", "SINCE START", "QUEUED", "LOST", "MOSTLY BY"}};
  for (const v1::Job& job : jobs) {
    rows.push_back(row_of(absl::StrCat(job.id()), job.spec().name(), v1::JobState_Name(job.state()),
                          job.goodput()));
  }
  const v1::Goodput all = goodput_of_all(jobs);
  if (jobs.size() > 1) rows.push_back(row_of("all", absl::StrCat(jobs.size(), " jobs"), "-", all));
  std::string text = format_table(std::move(rows));
  if (all.losses_size() > 0) absl::StrAppend(&text, "\n", losses_table(all));
  return text;
}

nlohmann::json goodput_report_to_json(const std::vector<v1::Job>& jobs) {
  nlohmann::json out = {{"jobs", nlohmann::json::array()},
                        {"all", daemon::goodput_to_json(goodput_of_all(jobs))}};
  for (const v1::Job& job : jobs) {
    out["jobs"].push_back({{"id", job.id()},
                           {"name", job.spec().name()},
                           {"state", v1::JobState_Name(job.state())},
                           {"goodput", daemon::goodput_to_json(job.goodput())}});
  }
  return out;
}

}  // namespace muster::cli
