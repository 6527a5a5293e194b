#include "cli/plan/search_view.h"

#include <algorithm>
#include <optional>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_split.h>

#include "cli/plan/forecast.h"
#include "cli/terminal/terminal.h"
#include "common/text/number_text.h"
#include "common/text/with_commas.h"
#include "trainer_core/base/units.h"

namespace muster::cli {
namespace {

// Rows of two lines that fit on a screen.
constexpr size_t kRowsShown = 12;

double speed_of(const FoundSetting& setting) { return setting.figures.tokens_per_second; }
double mib_of(const FoundSetting& setting) {
  return static_cast<double>(largest_device_bytes(setting.memory)) / trainer::kMiB;
}
bool setting_fits(const FoundSetting& setting) { return setting.memory.value("fits", false); }

// Removes the rows that gain least over the next smaller one, except for both ends and the user's.
std::vector<FoundSetting> thinned(std::vector<FoundSetting> rows) {
  while (rows.size() > kRowsShown) {
    size_t least = 0;
    for (size_t i = 1; i + 1 < rows.size(); ++i) {
      if (rows[i].line.empty()) continue;
      const auto gain = [&](size_t row) { return speed_of(rows[row]) / speed_of(rows[row - 1]); };
      if (least == 0 || gain(i) < gain(least)) least = i;
    }
    if (least == 0) break;
    rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(least));
  }
  return rows;
}

// Returns "as fast", or "1.5 times as fast".
std::string speed_text(const FoundSetting& setting, const FoundSetting& own) {
  const std::string ratio = absl::StrFormat("%.3g", speed_of(setting) / speed_of(own));
  return ratio == "1" ? "as fast" : absl::StrCat(ratio, " times as fast");
}

// Returns the fastest row that needs no more memory than the user's own setting.
const FoundSetting* better_row(const FoundSettings& found) {
  const FoundSetting* better = nullptr;
  for (const FoundSetting& row : found.rows)
    if (mib_of(row) <= mib_of(found.own)) better = &row;
  return better;
}

std::string place_of_own(const FoundSettings& found) {
  const FoundSetting& own = found.own;
  const FoundSetting& fastest = found.rows.back();
  const std::string of_fastest = absl::StrCat("; the fastest is ", speed_text(fastest, own), "\n");
  if (!setting_fits(own)) return "your setting does not fit\n";
  const auto place = std::ranges::find(found.rows, own.line, &FoundSetting::line);
  if (place != found.rows.end()) {
    return absl::StrCat("your setting: no planned one is better in both memory and speed",
                        &*place == &fastest ? ", and none is faster\n" : of_fastest);
  }
  const FoundSetting* better = better_row(found);
  if (better == nullptr) return absl::StrCat("your setting is slower", of_fastest);
  const std::string less = absl::StrFormat("%.0f MiB less", mib_of(own) - mib_of(*better));
  return absl::StrCat("your setting: another one needs ",
                      less == "0 MiB less" ? "as much memory" : less, " and is ",
                      speed_text(*better, own), of_fastest);
}

nlohmann::json to_json(const FoundSetting& setting) {
  return {{"line", setting.line},     {"changes", setting.changes},
          {"mesh", setting.mesh},     {"sequences", setting.sequences},
          {"memory", setting.memory}, {"step", to_json(setting.figures)}};
}

}  // namespace

std::string describe_search(const FoundSettings& found) {
  std::vector<FoundSetting> all = found.rows;
  const bool has_own = std::ranges::find(all, found.own.line, &FoundSetting::line) != all.end();
  if (!has_own) all.insert(std::ranges::upper_bound(all, mib_of(found.own), {}, mib_of), found.own);
  const std::vector<FoundSetting> shown = thinned(all);
  std::vector<std::vector<std::string>> rows(
      1, {"ROW", "MiB PER DEVICE", "SHARE", "STEP", "TOKENS/S/DEVICE", "MFU", "SEQUENCES"});
  size_t number = 0;
  for (const FoundSetting& setting : shown) {
    rows.push_back({setting.line.empty() ? "yours" : absl::StrCat(++number),
                    absl::StrFormat("%.1f", mib_of(setting)),
                    absl::StrFormat("%.0f%%", 100 * mib_of(setting) * trainer::kMiB /
                                                  setting.memory["memory_bytes"].get<double>()),
                    absl::StrFormat("%.3g s", setting.figures.seconds),
                    absl::StrFormat("%.0f", setting.figures.tokens_per_second_per_device),
                    absl::StrFormat("%.1f%%", 100 * setting.figures.mfu),
                    with_commas(setting.sequences)});
  }
  const std::vector<std::string> lines =
      absl::StrSplit(format_table(std::move(rows)), '\n', absl::SkipEmpty());
  std::string text = absl::StrCat(lines.front(), "\n");
  for (size_t i = 0; i < shown.size(); ++i) {
    absl::StrAppend(&text, lines[i + 1], "\n");
    if (!shown[i].line.empty()) absl::StrAppend(&text, "  ", shown[i].line, "\n");
  }
  absl::StrAppend(&text, "\n", place_of_own(found),
                  counted(static_cast<uint64_t>(found.planned), "setting"), " planned, ",
                  with_commas(static_cast<int64_t>(found.fitting)), " fit");
  if (const size_t hidden = all.size() - shown.size(); hidden > 0)
    absl::StrAppend(&text, "; ", counted(static_cast<uint64_t>(hidden), "row"),
                    " with small gains left out, which --json has");
  if (found.is_complete) {
    text += "; these are all settings\n";
  } else if (!found.is_interrupted) {
    absl::StrAppend(&text, "; --search-limit ", found.limit, " ended the search\n");
  } else {
    text += "\n";
  }
  return text;
}

nlohmann::json to_json(const FoundSettings& found) {
  auto rows = nlohmann::json::array();
  for (const FoundSetting& row : found.rows) rows.push_back(to_json(row));
  return {{"own", to_json(found.own)},     {"rows", std::move(rows)},
          {"planned", found.planned},      {"fitting", found.fitting},
          {"complete", found.is_complete}, {"interrupted", found.is_interrupted}};
}

}  // namespace muster::cli
