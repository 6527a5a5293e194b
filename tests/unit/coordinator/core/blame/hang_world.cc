#include "tests/unit/coordinator/core/blame/hang_world.h"

#include <algorithm>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster::coordinator {
namespace {

using Kind = CollectiveKind;
bool is_message(Kind kind) { return kind == Kind::kSend || kind == Kind::kRecv; }
std::string without_last_word(const std::string& name) { return name.substr(0, name.rfind(' ')); }

}  // namespace

HangWorld::HangWorld(const Mesh& mesh, uint64_t seed)
    : mesh_(mesh), random_(seed), ranks_(static_cast<size_t>(mesh.ranks())) {
  for (int32_t rank = 0; rank < mesh_.ranks(); ++rank) write_program(rank);
}

// ----------------------------------------------------------------------------- running it

std::optional<size_t> HangWorld::place_to_break(const Model& model, Break how, int step) {
  std::vector<size_t> places;
  std::set<size_t> groups_used;  // groups of the computation's channel
  for (const Op& op : model.program)
    if (op.what == Op::What::kCall && groups_[op.call.group].name.find('#') == std::string::npos)
      groups_used.insert(op.call.group);
  int steps = 0;
  for (size_t i = 0; i < model.program.size(); ++i) {
    const Op& op = model.program[i];
    if (op.what == Op::What::kStepDone) ++steps;
    // The first step is complete, so that all ranks have joined, and some call follows the fault.
    if (how == Break::kNeverJoins ? i > 0 : steps != step) continue;
    const bool is_plain_call = op.what == Op::What::kCall && op.call.kind != Kind::kSendRecv &&
                               groups_[op.call.group].name.find('#') == std::string::npos;
    switch (how) {
      case Break::kLoader:
        if (op.what == Op::What::kPhase && op.phase == Phase::kStep) places.push_back(i);
        break;
      case Break::kFsync:
        if (i > 0 && model.program[i - 1].what == Op::What::kPhase &&
            model.program[i - 1].phase == Phase::kCheckpointSave)
          places.push_back(i);
        break;
      case Break::kLock:
      case Break::kBusy:
      case Break::kNeverJoins:
        if (op.what == Op::What::kCompute) places.push_back(i);
        break;
      case Break::kSkips:
      case Break::kOtherCall:
      case Break::kInside:
      case Break::kStopsInside:
      case Break::kTransport:
        if (is_plain_call) places.push_back(i);
        break;
      case Break::kOtherGroup:
        if (is_plain_call && groups_used.size() > 1) places.push_back(i);
        break;
      default:
        places.push_back(i);
    }
  }
  if (places.empty()) return std::nullopt;
  return places[random_() % places.size()];
}

void HangWorld::break_at(Model& model) {
  const Op& op = model.program[model.at];
  switch (*model.how) {
    case Break::kStopped:
    case Break::kDebugger:
    case Break::kZombie:
    case Break::kGone:
      model.halted = true;
      break;
    case Break::kSkips:
      ++model.at;
      break;
    case Break::kOtherCall:
      model.program[model.at].call.kind = Kind::kBroadcast;
      model.program[model.at].call.name = "another call";
      break;
    case Break::kOtherGroup: {
      std::vector<size_t> others;
      for (const auto& [group, shown] : model.shown)
        if (group != op.call.group && groups_[group].name.find('#') == std::string::npos)
          others.push_back(group);
      if (!others.empty()) model.program[model.at].call.group = others[random_() % others.size()];
      break;
    }
    case Break::kInside:
    case Break::kStopsInside:
    case Break::kTransport:
      groups_[op.call.group].never_completes = true;
      return;  // continues into the call
    default:
      model.main_stuck = true;
  }
  if (!model.main_stuck && !model.halted) model.breaks_at = model.program.size();
}

bool HangWorld::is_complete(const Group& group, const Call& call, uint64_t seq) const {
  if (is_message(call.kind)) return group.messages.at(without_last_word(call.name)) >= 2;
  const std::vector<Call>& entered = group.entered[seq - 1];
  if (entered.size() < group.size || (group.never_completes && seq == group.entered.size()))
    return false;
  return std::all_of(entered.begin(), entered.end(), [&](const Call& other) {
    return other.kind == call.kind && (other.bytes == call.bytes || call.kind == Kind::kAllToAll);
  });
}

bool HangWorld::enter_or_complete(Model& model, Worker& worker, const Call& call) {
  Group& group = groups_[call.group];
  GroupEvidence& shown = model.shown[call.group];
  if (!worker.inside) {
    worker.inside = true;
    shown.name = group.name;
    shown.id = group.id;
    shown.members = static_cast<uint32_t>(group.size);
    shown.enqueued = ++shown.started;
    shown.kind = call.kind;
    shown.bytes = call.bytes;
    shown.collective = call.name;
    shown.age = std::chrono::seconds(12);
    if (is_message(call.kind)) {
      // Step numbers distinguish messages with the same name.
      ++group.messages[without_last_word(call.name)];
    } else {
      if (group.entered.size() < shown.started) group.entered.resize(shown.started);
      group.entered[shown.started - 1].push_back(call);
    }
    return true;
  }
  if (!is_complete(group, call, shown.started)) return false;
  shown.completed = shown.started;
  worker.inside = false;
  return true;
}

bool HangWorld::advance_thread(Model& model, Thread thread) {
  Worker& worker = model.threads[thread];
  bool moved = false;
  while (!model.halted && worker.done < worker.queue.size()) {
    if (!enter_or_complete(model, worker, worker.queue[worker.done])) break;
    if (!worker.inside) ++worker.done;
    moved = true;
  }
  return moved;
}

bool HangWorld::advance(int32_t rank) {
  Model& model = ranks_[static_cast<size_t>(rank)];
  bool moved = false;
  for (const Thread thread : {kStream, kSender, kReceiver}) moved |= advance_thread(model, thread);
  while (!model.halted && !model.main_stuck && model.at < model.program.size()) {
    if (model.how && model.at == model.breaks_at && !model.threads[kMain].inside) {
      break_at(model);
      if (model.halted || model.main_stuck) return true;
    }
    const Op& op = model.program[model.at];
    Worker& worker = model.threads[op.thread];
    if (op.what == Op::What::kCall) {
      if (!enter_or_complete(model, worker, op.call)) break;
      moved = true;
      if (worker.inside) {
        if (model.how == Break::kStopsInside && model.at == model.breaks_at) model.halted = true;
        continue;
      }
    } else if (op.what == Op::What::kEnqueue) {
      worker.queue.push_back(op.call);
      advance_thread(model, op.thread);
    } else if (op.what == Op::What::kWait) {
      const size_t left = worker.queue.size() - worker.done;
      if (left > (op.thread == kReceiver ? op.call.bytes - 1 : 0)) break;
    } else if (op.what == Op::What::kPhase) {
      model.phase = op.phase;
    } else if (op.what == Op::What::kStepDone) {
      ++model.step;
    }
    ++model.at;
    moved = true;
  }
  return moved;
}

bool HangWorld::run(const std::vector<BrokenRank>& broken) {
  for (const BrokenRank& one : broken) {
    Model& model = ranks_[static_cast<size_t>(one.rank)];
    const auto place = place_to_break(model, one.how, 1);
    if (!place) return false;
    model.how = one.how;
    model.breaks_at = *place;
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t rank = 0; rank < mesh_.ranks(); ++rank) moved |= advance(rank);
  }
  return true;
}

bool HangWorld::is_broken(int32_t rank) const {
  const Model& model = ranks_[static_cast<size_t>(rank)];
  return model.halted || model.main_stuck;
}

// ---------------------------------------------------------------------- what there is to see

std::vector<std::string> HangWorld::stack_of(int32_t rank) const {
  const Model& model = ranks_[static_cast<size_t>(rank)];
  std::vector<std::string> stack = {"_start", "main", "train", "run_step"};
  if (model.at >= model.program.size()) return {"_start", "main", "finish"};
  const Op& op = model.program[model.at];
  const bool inside = model.threads[kMain].inside;
  if (model.how == Break::kInside && inside && model.at == model.breaks_at)
    return {"_start", "main", "train", "run_step", "layer", "collective", "memory_fault"};
  if (inside) {
    stack.insert(stack.end(), {"layer", "collective", "exchange", "[kernel] futex"});
  } else if (op.what == Op::What::kWait && !model.main_stuck) {
    stack.insert(stack.end(), {"layer", "wait_for_stream", "[kernel] futex"});
  } else if (model.phase == Phase::kData) {
    stack = {"_start", "main", "train", "next_batch", "read"};
  } else if (model.phase == Phase::kCheckpointSave) {
    stack = {"_start", "main", "train", "save", "fsync"};
  } else {
    stack.insert(stack.end(),
                 {"layer", model.how == Break::kLock ? "pthread_mutex_lock" : "matmul"});
  }
  return stack;
}

RankEvidence HangWorld::evidence_of(int32_t rank) const {
  const Model& model = ranks_[static_cast<size_t>(rank)];
  RankEvidence evidence;
  evidence.rank = rank;
  evidence.pid = 1000 + rank;
  evidence.phase = model.phase;
  evidence.phase_age = std::chrono::seconds(13);
  evidence.step = model.step;
  evidence.process_state = 'S';
  for (const auto& [group, shown] : model.shown) evidence.groups.push_back(shown);
  if (model.halted || model.main_stuck) {
    switch (*model.how) {
      case Break::kStopped:
      case Break::kStopsInside:
        evidence.process_state = 'T';
        break;
      case Break::kDebugger:
        evidence.process_state = 't';
        evidence.tracer_pid = 17;
        break;
      case Break::kZombie:
        evidence.process_state = 'Z';
        break;
      case Break::kFsync:
        evidence.process_state = 'D';
        evidence.wait_channel = "ext4_sync_file";
        break;
      case Break::kBusy:
        evidence.process_state = 'R';
        break;
      default:
        break;
    }
  }
  return evidence;
}

BlameInput HangWorld::describe(bool with_stacks) const {
  BlameInput input;
  StackSample sample;
  for (int32_t rank = 0; rank < mesh_.ranks(); ++rank) {
    input.placement.push_back({.rank = Rank(rank),
                               .worker = WorkerName(absl::StrCat("node", rank / 8)),
                               .local_rank = rank % 8,
                               .incarnation = Incarnation(1)});
    const Model& model = ranks_[static_cast<size_t>(rank)];
    if (model.how == Break::kGone && model.halted) {
      input.gone[Rank(rank)] = "is on a worker that does not answer";
      continue;
    }
    input.later.ranks.push_back(evidence_of(rank));
    RankStacks stacks;
    stacks.rank = rank;
    stacks.threads.emplace_back();
    stacks.threads[0].name = "main";
    for (std::string& text : stack_of(rank)) {
      StackFrame frame;
      frame.text = std::move(text);
      stacks.threads[0].frames.push_back(std::move(frame));
    }
    sample.ranks.push_back(std::move(stacks));
  }
  input.earlier.ranks = input.later.ranks;
  if (with_stacks) input.later.stacks.add(sample);
  return input;
}

}  // namespace muster::coordinator
