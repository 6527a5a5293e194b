// The program of simulated ranks: the calls, waits and phases of a trainer's steps for each rank
// coordinate.
#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "tests/unit/coordinator/core/blame/hang_world.h"

namespace muster::coordinator {
namespace {

using Kind = CollectiveKind;
constexpr AxisSet kPipeline = {MeshAxis::kPipeline};

}  // namespace

bool HangWorld::has(AxisSet axes) const { return mesh_.group_size({.axes = axes}) > 1; }

size_t HangWorld::group_of(int32_t rank, AxisSet axes, int channel) {
  AxisSet real;
  for (int i = 0; i < kMeshAxisCount; ++i) {
    const auto axis = static_cast<MeshAxis>(i);
    if (axes.contains(axis) && mesh_.degree(axis) > 1) real = real.with(axis);
  }
  const auto members = mesh_.group(rank, {.axes = real});
  const auto id = static_cast<uint32_t>(*std::min_element(members.begin(), members.end()));
  std::string name = real.to_string();
  if (channel > 0) absl::StrAppend(&name, "#", channel);
  const auto [place, is_new] = group_index_.try_emplace({name, id}, groups_.size());
  if (is_new) {
    groups_.emplace_back();
    groups_.back().name = name;
    groups_.back().id = id;
    groups_.back().size = members.size();
  }
  return place->second;
}

void HangWorld::call(int32_t rank, std::vector<Op>& out, Thread thread, AxisSet axes, int channel,
                     Kind kind, std::string name, uint64_t bytes) {
  if (!has(axes)) return;
  Op op;
  op.what = thread == kMain ? Op::What::kCall : Op::What::kEnqueue;
  op.thread = thread;
  op.call = {group_of(rank, axes, channel), kind, std::move(name), bytes};
  out.push_back(std::move(op));
}

void HangWorld::write_layer(int32_t rank, int layer, bool forward, std::vector<Op>& out) {
  const AxisSet fsdp = {MeshAxis::kFsdp, MeshAxis::kContext};
  const auto name = [&](const char* what) { return absl::StrCat("layer ", layer, " ", what); };
  const auto op = [&](Op::What what, Thread thread = kMain) {
    Op one;
    one.what = what;
    one.thread = thread;
    out.push_back(one);
  };
  call(rank, out, kStream, fsdp, 1, Kind::kAllGather, name("weights"), 4096);
  op(Op::What::kCompute);
  op(Op::What::kWait, kStream);
  call(rank, out, kMain, {MeshAxis::kTensor}, 0, Kind::kAllGather, name("attention all-gather"),
       512);
  op(Op::What::kCompute);
  call(rank, out, kMain, {MeshAxis::kContext}, 2, Kind::kSendRecv, name("keys"), 256);
  call(rank, out, kMain, {MeshAxis::kSequence}, 0, Kind::kAllToAll, name("heads"),
       128 + static_cast<uint64_t>(rank));
  op(Op::What::kCompute);
  call(rank, out, kMain, {MeshAxis::kExpert}, 0, Kind::kAllToAll, name("tokens"), 64);
  call(rank, out, kMain, {MeshAxis::kTensor}, 0, Kind::kReduceScatter, name("mlp reduce-scatter"),
       1024);
  if (forward) return;
  call(rank, out, kStream, fsdp, 1, Kind::kReduceScatter, name("gradients"), 4096);
  call(rank, out, kStream, {MeshAxis::kData}, 1, Kind::kAllReduce, name("gradients"), 2048);
}

void HangWorld::write_program(int32_t rank) {
  std::vector<Op>& out = ranks_[static_cast<size_t>(rank)].program;
  const auto op = [&](Op::What what, Thread thread = kMain, Phase phase = Phase::kInit) {
    Op one;
    one.what = what;
    one.thread = thread;
    one.phase = phase;
    out.push_back(one);
  };
  const int stage = mesh_.coordinate(rank)[static_cast<size_t>(MeshAxis::kPipeline)];
  const int stages = mesh_.degree(MeshAxis::kPipeline);
  const auto channel = [&](int from) {
    return 3 + (stages % 2 == 1 && from + 1 == stages ? 2 : from % 2);
  };
  const auto message = [&](int micro_batch, const char* what) {
    return absl::StrCat("micro-batch ", micro_batch, " ", what);
  };
  op(Op::What::kCompute);
  for (int step = 0; step < kSteps; ++step) {
    op(Op::What::kPhase, kMain, Phase::kData);
    op(Op::What::kPhase, kMain, Phase::kStep);
    for (const bool forward : {true, false}) {
      const int from = forward ? stage - 1 : stage + 1;
      const int to = forward ? stage + 1 : stage - 1;
      const char* what = forward ? "activations" : "gradients";
      for (int mb = 0; mb < kMicroBatches && from >= 0 && from < stages; ++mb)  // prefetched
        call(rank, out, kReceiver, kPipeline, channel(from), Kind::kRecv,
             message(mb, what) + " recv", 8192);
      for (int mb = 0; mb < kMicroBatches; ++mb) {
        if (from >= 0 && from < stages) {
          op(Op::What::kWait, kReceiver);
          out.back().call.bytes = static_cast<uint64_t>(kMicroBatches - mb);  // how many may remain
        }
        for (int layer = 0; layer < kLayers; ++layer) write_layer(rank, layer, forward, out);
        if (to < 0 || to >= stages) continue;
        op(Op::What::kWait, kSender);
        call(rank, out, kSender, kPipeline, channel(stage), Kind::kSend,
             message(mb, what) + " send", 8192);
      }
    }
    op(Op::What::kWait, kSender);
    op(Op::What::kWait, kStream);
    op(Op::What::kCompute);
    call(rank, out, kMain, AxisSet::all(), 0, Kind::kAllReduce, "step", 72);
    op(Op::What::kStepDone);
    op(Op::What::kPhase, kMain, Phase::kCheckpointSave);
    call(rank, out, kMain, AxisSet::all().without(MeshAxis::kData), 6, Kind::kAllGather, "save",
         16);
  }
  op(Op::What::kPhase, kMain, Phase::kShutdown);
}

}  // namespace muster::coordinator
