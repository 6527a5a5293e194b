#include "trainer_core/forecast/timeline.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace muster::trainer {
namespace {

// The kinds of bars, each with a colour.
enum class BarKind : uint8_t {
  kForwardGemm,
  kBackwardGemm,
  kAttention,
  kMemory,
  kRecompute,
  kOptimizer,
  kCommunication,
  kForwardPass,
  kBackwardPass
};
struct BarStyle {
  const char* name;
  const char* colour;
};
constexpr BarStyle kStyles[] = {
    {"GEMMs, forward", "#4e79a7"}, {"GEMMs, backward", "#2f4b7c"}, {"attention", "#f28e2b"},
    {"memory-bound", "#a0a8b3"},   {"recomputation", "#b07aa1"},   {"optimizer", "#edc948"},
    {"communication", "#59a14f"},  {"forward pass", "#4e79a7"},    {"backward pass", "#2f4b7c"},
};
const BarStyle& style_of(BarKind kind) { return kStyles[static_cast<size_t>(kind)]; }

struct Bar {
  BarKind kind = BarKind::kMemory;
  std::string name;
  WorkTime time;
};

struct Lane {
  std::string name;
  std::vector<Bar> bars;
};

BarKind kind_of(const TracedWork& work) {
  if (work.kind == WorkKind::kCollective) return BarKind::kCommunication;
  if (work.phase == StepPhase::kUpdate) return BarKind::kOptimizer;
  if (work.phase == StepPhase::kRecompute) return BarKind::kRecompute;
  if (work.kind == WorkKind::kAttention) return BarKind::kAttention;
  if (work.kind != WorkKind::kGemm) return BarKind::kMemory;
  return work.phase == StepPhase::kForward ? BarKind::kForwardGemm : BarKind::kBackwardGemm;
}

std::string name_of(const TracedWork& work, const StepTrace& trace) {
  std::string name = work.layer < 0 ? "" : absl::StrCat("layer ", work.layer, " ");
  absl::StrAppend(&name, work.name);
  if (work.kind == WorkKind::kGemm)
    absl::StrAppend(&name, " ", work.gemm.m, "x", work.gemm.n, "x", work.gemm.k);
  if (work.kind == WorkKind::kCollective)
    absl::StrAppend(&name, " ", trace.groups[static_cast<size_t>(work.group)].name);
  return name;
}

std::vector<Lane> lanes_of(const StepModel& model, const StepMachine& machine) {
  std::vector<Lane> lanes;
  const StepTrace& trace = model.first_stage();
  const StepSchedule schedule = schedule_step(trace, StepCost(machine.device, machine.constants));
  Lane compute{"computation", {}}, in_layers{"collectives between operations", {}};
  const auto& works = trace.of(StepStream::kCompute);
  for (size_t i = 0; i < works.size(); ++i) {
    const BarKind kind = kind_of(works[i]);
    Lane& lane = kind == BarKind::kCommunication ? in_layers : compute;
    lane.bars.push_back({kind, name_of(works[i], trace), schedule.streams[0][i]});
  }
  lanes.push_back(std::move(compute));
  if (!in_layers.bars.empty()) lanes.push_back(std::move(in_layers));
  constexpr const char* kNames[] = {"", "parameters and gradients", "ring attention",
                                    "sends to stages", "receives from stages"};
  for (size_t stream = 1; stream < kStepStreams; ++stream) {
    Lane lane{kNames[stream], {}};
    for (size_t i = 0; i < trace.streams[stream].size(); ++i)
      lane.bars.push_back({BarKind::kCommunication, name_of(trace.streams[stream][i], trace),
                           schedule.streams[stream][i]});
    if (!lane.bars.empty()) lanes.push_back(std::move(lane));
  }
  const auto stages = model.pipeline(machine);
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    Lane lane{absl::StrCat("stage ", stage), {}};
    for (const PassTime& pass : stages[stage]) {
      const bool forward = pass.pass.kind == PassKind::kForward;
      lane.bars.push_back({forward ? BarKind::kForwardPass : BarKind::kBackwardPass,
                           absl::StrCat(forward ? "forward " : "backward ", pass.pass.micro_batch,
                                        " chunk ", pass.pass.chunk),
                           pass.time});
    }
    lanes.push_back(std::move(lane));
  }
  return lanes;
}

std::string chrome_trace(const std::vector<Lane>& lanes) {
  auto events = nlohmann::json::array();
  constexpr double kMicroseconds = 1e6;
  for (size_t i = 0; i < lanes.size(); ++i) {
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", 0},
                      {"tid", i},
                      {"args", {{"name", lanes[i].name}}}});
    for (const Bar& bar : lanes[i].bars) {
      events.push_back({{"ph", "X"},
                        {"name", bar.name},
                        {"cat", style_of(bar.kind).name},
                        {"pid", 0},
                        {"tid", i},
                        {"ts", bar.time.begin * kMicroseconds},
                        {"dur", (bar.time.end - bar.time.begin) * kMicroseconds}});
    }
  }
  return nlohmann::json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump() +
         "\n";
}

// Pixels.
constexpr double kLeft = 210, kWidth = 1400, kLaneHeight = 26, kLanePitch = 34, kTop = 64;
// Bars of one kind that are closer than this are drawn as one.
constexpr double kSmallest = 0.4;

std::string bar_text(const Lane& lane, double scale, double top) {
  std::string text;
  const auto draw = [&](BarKind kind, double begin, double end) {
    absl::StrAppendFormat(
        &text, "<rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"%.0f\" fill=\"%s\"/>\n",
        kLeft + begin, top, std::max(end - begin, kSmallest), kLaneHeight, style_of(kind).colour);
  };
  bool open = false;
  BarKind kind{};
  double begin = 0, end = 0;
  for (const Bar& bar : lane.bars) {
    const double from = bar.time.begin * scale, to = bar.time.end * scale;
    if (to <= from) continue;
    // A bar too narrow to see continues the one before it.
    const bool joins =
        open && from - end < kSmallest && (bar.kind == kind || to - from < kSmallest);
    if (joins) {
      end = to;
      continue;
    }
    if (open) draw(kind, begin, end);
    open = true;
    kind = bar.kind;
    begin = from;
    end = to;
  }
  if (open) draw(kind, begin, end);
  return text;
}

std::string svg(const std::vector<Lane>& lanes) {
  double last = 0;
  for (const Lane& lane : lanes)
    for (const Bar& bar : lane.bars) last = std::max(last, bar.time.end);
  const double scale = last > 0 ? kWidth / last : 0;
  const double bottom = kTop + kLanePitch * static_cast<double>(lanes.size());
  std::string text = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" "
      "fill=\"white\"/>\n",
      kLeft + kWidth + 30, bottom + 40);
  double x = kLeft;
  std::vector<bool> used(std::size(kStyles));
  for (const Lane& lane : lanes)
    for (const Bar& bar : lane.bars) used[static_cast<size_t>(bar.kind)] = true;
  for (size_t i = 0; i < std::size(kStyles); ++i) {
    if (!used[i]) continue;
    absl::StrAppendFormat(&text,
                          "<rect x=\"%.0f\" y=\"20\" width=\"14\" height=\"14\" fill=\"%s\"/>"
                          "<text x=\"%.0f\" y=\"32\">%s</text>\n",
                          x, kStyles[i].colour, x + 20, kStyles[i].name);
    x += 42 + 8 * static_cast<double>(std::string_view(kStyles[i].name).size());
  }
  for (size_t i = 0; i < lanes.size(); ++i) {
    const double top = kTop + kLanePitch * static_cast<double>(i);
    absl::StrAppendFormat(&text,
                          "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">%s</text>\n"
                          "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" "
                          "fill=\"#f1f2f4\"/>\n",
                          kLeft - 10, top + 18, lanes[i].name, kLeft, top, kWidth, kLaneHeight);
    text += bar_text(lanes[i], scale, top);
  }
  constexpr int kMarks = 10;
  for (int i = 0; i <= kMarks; ++i) {
    const double seconds = last * i / kMarks;
    const double at = kLeft + kWidth * i / kMarks;
    absl::StrAppendFormat(&text,
                          "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\" "
                          "fill=\"#555\">%.3g%s</text>\n",
                          at, bottom + 18, last < 1 ? seconds * 1000 : seconds,
                          last < 1 ? " ms" : " s");
  }
  return text + "</svg>\n";
}

}  // namespace

absl::StatusOr<std::string> timeline(const StepModel& model, const StepMachine& machine,
                                     const std::string& path) {
  if (absl::EndsWith(path, ".json")) return chrome_trace(lanes_of(model, machine));
  if (absl::EndsWith(path, ".svg")) return svg(lanes_of(model, machine));
  return absl::InvalidArgumentError(
      absl::StrCat("--timeline ", path, ": must end in .json (a Chrome trace) or .svg"));
}

}  // namespace muster::trainer
