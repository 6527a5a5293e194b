// An example of an incident and its stacks, as a coordinator sends them: rank 1 of 4 is stuck in
// its data loader, and the other ranks wait for it.
#pragma once

#include <chrono>

#include "common/job/rank_evidence.h"
#include "common/stacks/stack_tree.h"
#include "daemon/evidence_messages.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

inline StackTree stuck_stacks() {
  const StackFrame main{0, 0x10, ""}, step{0, 0x20, ""}, gather{0, 0x30, ""}, load{0, 0x40, ""},
      poll{1, 0x50, ""}, script{kNoModule, 0, "train.py:31 train_step"};
  StackSample sample;
  sample.modules = {{"ab", "/usr/bin/muster-trainer"}, {"cd", "/usr/lib/libc.so.6"}};
  for (int32_t rank = 0; rank < 4; ++rank) {
    ThreadStack thread, reader;
    thread.name = "main";
    thread.frames = rank == 1 ? std::vector<StackFrame>{main, load, script}
                              : std::vector<StackFrame>{main, step, gather, poll};
    reader.name = "prefetch";
    reader.frames = {load};
    sample.ranks.push_back({rank, 100 + rank, "", {thread, reader}, ""});
  }
  StackTree stacks;
  stacks.add(sample);
  for (uint32_t i = 0; i < stacks.frames().size(); ++i) {
    const uint64_t address = stacks.frames()[i].address;
    if (address == 0x30)
      stacks.set_symbol(i,
                        {"muster::trainer::Transport::all_gather(muster::trainer::Tensor const&)",
                         "/src/trainer_core/comm/transport_group.cc", 88});
    if (address == 0x40)
      stacks.set_symbol(
          i, {"muster::trainer::Batches::read()", "/src/trainer_core/data/batches.cc", 12});
    if (address == 0x50) stacks.set_symbol(i, {"poll", "", 0});
  }
  return stacks;
}

inline std::vector<RankEvidence> stuck_ranks() {
  std::vector<RankEvidence> ranks;
  for (const int32_t number : {1, 0, 3}) {
    RankEvidence& rank = ranks.emplace_back();
    rank.rank = number;
    rank.pid = 100 + number;
    rank.phase = number == 1 ? Phase::kData : Phase::kStep;
    rank.step = 41;
    rank.progress_age = std::chrono::milliseconds(2'500);
    const uint64_t entered = number == 1 ? 41 : 42;
    rank.groups = {{.name = "fsdp",
                    .members = 4,
                    .id = 0,
                    .enqueued = entered,
                    .started = entered,
                    .completed = 41,
                    .kind = CollectiveKind::kAllGather,
                    .dtype = 0,
                    .bytes = 1 << 20,
                    .collective = number == 1 ? "" : "layer 3 mlp all-gather",
                    .age = number == 1 ? Duration{} : std::chrono::seconds(2)}};
    rank.process_state = 'S';
    if (number == 1) rank.wait_channel = "pipe_read";
    if (number == 3) rank.stack_problem = "held by a debugger (pid 17)";
    rank.last_lines = {"completed step: 40", "completed step: 41"};
  }
  return ranks;
}

inline v1::Incident stuck_incident() {
  constexpr int64_t kBegin = 1'700'000'000'000'000'000;
  v1::Incident incident;
  incident.set_id(7);
  incident.set_job_id(3);
  incident.set_attempt(2);
  incident.set_job_name("llama");
  incident.set_kind("hang");
  incident.set_sentence(
      "rank 1 on node0 never entered all-gather 42 of fsdp (layer 3 mlp all-gather), which 3 other "
      "ranks wait in; it is in Batches::read()");
  v1::Suspect& first = *incident.add_suspects();
  first.set_rank(1);
  first.set_worker("node0");
  first.set_axis("fsdp");
  first.set_collective("layer 3 mlp all-gather");
  first.set_source("data/batches.cc:12 in muster::trainer::Batches::read()");
  first.set_why("never entered all-gather 42");
  first.set_confidence(0.9);
  v1::Suspect& second = *incident.add_suspects();
  second.set_rank(-1);
  second.set_worker("node0");
  second.set_why("its disk\x1b[31m is slow");
  second.set_confidence(0.1);
  for (const auto& [ms, text] : {std::pair{0, "last progress: step 41"},
                                 {2'500, "suspected"},
                                 {2'710, "stacks read"},
                                 {3'720, "verdict: stuck"}}) {
    v1::Incident::Moment& moment = *incident.add_moments();
    moment.set_unix_ns(kBegin + int64_t{ms} * 1'000'000);
    moment.set_text(text);
  }
  incident.set_action("restart 1 of 3");
  incident.add_kernel_messages("nvme0n1: I/O error");
  daemon::stack_tree_to_proto(stuck_stacks(), daemon::kStackTreeBytesMax,
                              *incident.mutable_stacks());
  daemon::evidence_to_proto(stuck_ranks(), daemon::kEvidenceBytesMax, *incident.mutable_ranks());
  return incident;
}

}  // namespace muster::cli
