#include "cli/jobs/stack_view.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "cli/terminal/terminal.h"
#include "common/text/absl_view.h"
#include "daemon/json/stack_json.h"

namespace muster::cli {
namespace {

constexpr std::string_view kMain = "main";
constexpr size_t kRangesShown = 12;

// Returns "3 ranks: 0,2-3" or "rank 1".
std::string name_of(const RankSet& ranks) {
  if (ranks.size() == 1) return absl::StrCat("rank ", ranks.text());
  return absl::StrCat(ranks.size(), " ranks: ", ranks.text(kRangesShown));
}

std::string line(std::string_view text, const StackView& view) {
  return shorten(text, view.columns_max) + "\n";
}

bool has_any(const RankSet& ranks, const RankSet& of) {
  return std::any_of(of.ranges().begin(), of.ranges().end(), [&](const RankSet::Range& wanted) {
    return std::any_of(ranks.ranges().begin(), ranks.ranges().end(), [&](const auto& range) {
      return range.first <= wanted.last && wanted.first <= range.last;
    });
  });
}

std::string describe_class(const StackTree& stacks, const StackTree::Class& one,
                           const StackView& view) {
  std::string heading = name_of(one.ranks);
  if (one.thread != kMain) heading = absl::StrCat("thread ", one.thread, " of ", heading);
  const bool is_suspect = has_any(one.ranks, view.suspects);
  if (is_suspect) heading += one.ranks.size() == 1 ? " (suspect)" : " (with a suspect)";
  heading = shorten(heading, view.columns_max);
  std::string text = (is_suspect ? coloured(view.fd, Colour::kRed, heading) : heading) + "\n";
  // The frames of a Python program are shown whole, because its innermost frames often belong to
  // libraries.
  size_t shown = 0, left = 0;
  const auto add_left = [&](std::string_view where) {
    if (left == 0) return;
    text += coloured(view.fd, Colour::kDim,
                     absl::StrCat("  … ", left, left == 1 ? " frame" : " frames", av(where)));
    text += "\n";
    left = 0;
  };
  for (size_t i = one.frames.size(); i-- > 0;) {
    const bool is_python = !daemon::python_frame(stacks, one.frames[i]).file.empty();
    if (shown >= view.frames_max && !is_python) {
      ++left;
      continue;
    }
    add_left("");
    ++shown;
    text += line(absl::StrCat("  ", stacks.frame_text(one.frames[i])), view);
  }
  add_left(" further out");
  return text;
}

}  // namespace

size_t columns_of(int fd) {
  return isatty(fd) == 1 ? static_cast<size_t>(terminal_width(fd))
                         : kStackDepthMax * kFrameTextBytesMax;
}

std::string describe_stacks(const StackTree& stacks, const StackView& view) {
  std::vector<StackTree::Class> classes = stacks.classes("");
  // Main threads come first, then the others by name; each name keeps its order, the largest class
  // first.
  std::stable_sort(classes.begin(), classes.end(), [](const auto& a, const auto& b) {
    if ((a.thread == kMain) != (b.thread == kMain)) return a.thread == kMain;
    return a.thread != kMain && a.thread < b.thread;
  });
  const auto others = static_cast<size_t>(std::count_if(
      classes.begin(), classes.end(), [](const auto& one) { return one.thread != kMain; }));
  if (!view.all_threads) classes.resize(classes.size() - others);
  std::string text;
  const size_t shown = std::min(classes.size(), view.classes_max);
  for (size_t i = 0; i < shown; ++i)
    absl::StrAppend(&text, i == 0 ? "" : "\n", describe_class(stacks, classes[i], view));
  std::vector<std::string> left;
  if (classes.size() > shown)
    left.push_back(absl::StrCat("… ", classes.size() - shown, " more stacks of fewer ranks"));
  if (!view.all_threads && others > 0)
    left.push_back(
        absl::StrCat("… ", others, others == 1 ? " stack" : " stacks", " of other threads"));
  if (stacks.dropped() > 0)
    left.push_back(absl::StrCat("… ", stacks.dropped(),
                                stacks.dropped() == 1 ? " stack was" : " stacks were",
                                " cut off or left out: there was no room for more"));
  if (!left.empty() && !text.empty()) text += "\n";
  for (const std::string& sentence : left)
    absl::StrAppend(&text, coloured(view.fd, Colour::kDim, shorten(sentence, view.columns_max)),
                    "\n");
  return text;
}

std::string describe_stack_problems(const std::vector<RankEvidence>& ranks, const StackView& view) {
  std::map<std::string, RankSet> problems;
  for (const RankEvidence& rank : ranks) {
    if (!rank.stack_problem.empty()) {
      problems[absl::StrCat("no stack: ", rank.stack_problem)].add(rank.rank);
    } else if (!rank.stack_note.empty()) {
      problems[rank.stack_note].add(rank.rank);
    }
  }
  std::string text;
  for (const auto& [problem, affected] : problems) {
    const std::string sentence = absl::StrCat(name_of(affected), ": ", problem);
    absl::StrAppend(&text, coloured(view.fd, Colour::kYellow, shorten(sentence, view.columns_max)),
                    "\n");
  }
  return text;
}

std::string describe_groups(const std::vector<RankEvidence>& ranks) {
  const bool anybody_waits = std::any_of(ranks.begin(), ranks.end(), [](const RankEvidence& rank) {
    return std::any_of(rank.groups.begin(), rank.groups.end(),
                       [](const GroupEvidence& group) { return group.waits(); });
  });
  // If one rank waits in a group, the table has all its ranks: the one that is behind is the
  // interesting one.
  std::map<std::pair<std::string, uint32_t>, bool> wanted;
  for (const RankEvidence& rank : ranks) {
    for (const GroupEvidence& group : rank.groups) {
      if (group.enqueued > 0) wanted[{group.name, group.id}] |= group.waits() || !anybody_waits;
    }
  }
  std::vector<std::vector<std::string>> rows = {
      {"RANK", "GROUP", "SIZE", "ENQUEUED", "STARTED", "DONE", "AGE", "LAST"}};
  for (const RankEvidence& rank : ranks) {
    for (const GroupEvidence& group : rank.groups) {
      const auto found = wanted.find({group.name, group.id});
      if (found == wanted.end() || !found->second) continue;
      rows.push_back(
          {absl::StrCat(rank.rank), group.name,
           group.members == 0 ? "-" : absl::StrCat(group.members), absl::StrCat(group.enqueued),
           absl::StrCat(group.started), absl::StrCat(group.completed),
           group.age == Duration::zero() ? "-" : format_duration(to_seconds(group.age)),
           absl::StrCat(group.called > 0 ? absl::StrCat(group.called, ": ") : "",
                        group.collective.empty() ? std::string(collective_name(group.kind))
                                                 : group.collective)});
    }
  }
  return rows.size() == 1 ? "" : format_table(rows);
}

}  // namespace muster::cli
