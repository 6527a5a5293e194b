#include "cli/jobs/stack_view.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "cli/terminal/terminal.h"
#include "common/text/absl_view.h"
#include "common/text/python_frame.h"

namespace muster::cli {
namespace {

using nlohmann::json;

constexpr std::string_view kMain = "main";
constexpr size_t kRangesShown = 12;
constexpr std::array<std::string_view, 10> kCollectiveNames = {
    "none",      "all-reduce", "all-gather", "reduce-scatter", "all-to-all",
    "broadcast", "send",       "recv",       "barrier",        "send-recv"};

std::string kind_name(CollectiveKind kind) {
  const auto index = static_cast<size_t>(kind);
  return std::string(index < kCollectiveNames.size() ? kCollectiveNames[index] : "unknown");
}

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

// Returns the parts of a Python frame; an empty file for other frames.
PythonFrame python_of(const StackTree& stacks, uint32_t index) {
  const StackFrame& frame = stacks.frames()[index];
  return frame.module == kNoModule ? python_frame_of(frame.text) : PythonFrame{};
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
    const bool is_python = !python_of(stacks, one.frames[i]).file.empty();
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

json frame_to_json(const StackTree& stacks, uint32_t index) {
  const StackFrame& frame = stacks.frames()[index];
  json out = {{"text", stacks.frame_text(index)}};
  if (const PythonFrame python = python_of(stacks, index); !python.file.empty()) {
    out["file"] = std::string(python.file);
    out["line"] = python.line;
    out["function"] = std::string(python.function);
  }
  if (frame.module == kNoModule) return out;
  const StackModule& module = stacks.modules()[frame.module];
  out["module"] = module.path;
  out["build_id"] = module.build_id;
  out["address"] = frame.address;
  const FrameSymbol& symbol = stacks.symbol(index);
  if (!symbol.function.empty()) out["function"] = symbol.function;
  if (!symbol.file.empty()) {
    out["file"] = symbol.file;
    out["line"] = symbol.line;
  }
  return out;
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
                        group.collective.empty() ? kind_name(group.kind) : group.collective)});
    }
  }
  return rows.size() == 1 ? "" : format_table(rows);
}

json ranks_to_json(const RankSet& ranks) {
  json out = json::array();
  for (const RankSet::Range& range : ranks.ranges()) out.push_back({range.first, range.last});
  return out;
}

json stacks_to_json(const StackTree& stacks) {
  json classes = json::array();
  for (const StackTree::Class& one : stacks.classes("")) {
    json frames = json::array();
    for (auto frame = one.frames.rbegin(); frame != one.frames.rend(); ++frame)
      frames.push_back(frame_to_json(stacks, *frame));
    classes.push_back({{"thread", one.thread},
                       {"count", one.ranks.size()},
                       {"ranks", ranks_to_json(one.ranks)},
                       {"frames", std::move(frames)}});
  }
  return {{"classes", std::move(classes)}, {"dropped", stacks.dropped()}};
}

json evidence_to_json(const RankEvidence& rank) {
  json groups = json::array();
  for (const GroupEvidence& group : rank.groups) {
    groups.push_back({{"name", group.name},
                      {"members", group.members},
                      {"id", group.id},
                      {"enqueued", group.enqueued},
                      {"started", group.started},
                      {"completed", group.completed},
                      {"kind", kind_name(group.kind)},
                      {"bytes", group.bytes},
                      {"collective", group.collective},
                      {"number", group.number()},
                      {"age_seconds", to_seconds(group.age)}});
  }
  return {{"rank", rank.rank},
          {"pid", rank.pid},
          {"page_problem", rank.page_problem},
          {"phase", std::string(phase_name(rank.phase))},
          {"phase_age_seconds", to_seconds(rank.phase_age)},
          {"step", rank.step},
          {"progress_age_seconds", to_seconds(rank.progress_age)},
          {"step_seconds", rank.step_seconds},
          {"collective_wait_seconds", rank.collective_wait_seconds},
          {"data_wait_seconds", rank.data_wait_seconds},
          {"groups", std::move(groups)},
          {"process_state", std::string(1, rank.process_state)},
          {"tracer_pid", rank.tracer_pid},
          {"wait_channel", rank.wait_channel},
          {"memory_used_bytes", rank.memory.used},
          {"memory_limit_bytes", rank.memory.limit},
          {"stack_problem", rank.stack_problem},
          {"stack_note", rank.stack_note},
          {"last_lines", rank.last_lines},
          {"files", rank.files}};
}

}  // namespace muster::cli
