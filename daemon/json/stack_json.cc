#include "daemon/json/stack_json.h"

#include <string>
#include <utility>

namespace muster::daemon {
namespace {

using nlohmann::json;

json frame_to_json(const StackTree& stacks, uint32_t index) {
  const StackFrame& frame = stacks.frames()[index];
  json out = {{"text", stacks.frame_text(index)}};
  if (const PythonFrame python = python_frame(stacks, index); !python.file.empty()) {
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

PythonFrame python_frame(const StackTree& stacks, uint32_t index) {
  const StackFrame& frame = stacks.frames()[index];
  return frame.module == kNoModule ? python_frame_of(frame.text) : PythonFrame{};
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
                      {"kind", std::string(collective_name(group.kind))},
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

json dump_to_json(const v1::DumpJobStacksResponse& dump, const StackTree& stacks,
                  const std::vector<RankEvidence>& ranks) {
  json out = stacks_to_json(stacks);
  out["job"] = dump.job_id();
  out["attempt"] = dump.attempt();
  out["ranks"] = json::array();
  for (const RankEvidence& rank : ranks) out["ranks"].push_back(evidence_to_json(rank));
  out["silent_workers"] = json::array();
  for (const std::string& worker : dump.silent_workers()) out["silent_workers"].push_back(worker);
  return out;
}

}  // namespace muster::daemon
