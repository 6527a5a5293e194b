// Returns an incident whose fields are all set as blame would set them: rank 1 of 4 never entered a
// collective.
#pragma once

#include <chrono>

#include "coordinator/core/records/incident.h"

namespace muster::coordinator {

inline Incident full_incident(uint64_t id, JobId job = JobId(3)) {
  const auto waiting = [](int32_t rank) {
    RankEvidence evidence;
    evidence.rank = rank;
    evidence.pid = 100 + rank;
    evidence.phase = Phase::kStep;
    evidence.step = 41;
    evidence.progress_age = std::chrono::milliseconds(2'500);
    evidence.groups = {{.name = "fsdp",
                        .members = 4,
                        .id = 0,
                        .enqueued = 42,
                        .started = 42,
                        .completed = 41,
                        .kind = CollectiveKind::kAllGather,
                        .dtype = 0,
                        .bytes = 1 << 20,
                        .collective = "layer 3 mlp all-gather",
                        .age = std::chrono::seconds(2)}};
    evidence.process_state = 'S';
    evidence.last_lines = {"completed step: 41"};
    return evidence;
  };
  StackSample sample;
  sample.modules = {{"abcdef01", "/usr/bin/muster-trainer"}};
  for (int32_t rank = 0; rank < 4; ++rank) {
    ThreadStack main;
    main.tid = main.tid + 100 + rank;
    main.name = "main";
    main.state = 'S';
    main.frames = {{0, 0x10, ""}, {0, rank == 1 ? 0x30ULL : 0x20ULL, ""}};
    sample.ranks.push_back({rank, main.tid, "", {main}, ""});
  }
  Incident incident;
  incident.id = IncidentId(id);
  incident.job = job;
  incident.attempt = Attempt(2);
  incident.job_name = "llama";
  incident.kind = IncidentKind::kHang;
  incident.open = false;
  incident.sentence = "rank 1 on node0 never entered fsdp all-gather 42, which 3 others wait in";
  incident.suspects = {{.rank = Rank(1),
                        .worker = WorkerName("node0"),
                        .axis = "fsdp",
                        .collective = "layer 3 mlp all-gather",
                        .source = "train.cc:210 in muster::trainer::run()",
                        .why = "never entered all-gather 42",
                        .confidence = 0.875},
                       {.rank = Rank(-1),
                        .worker = WorkerName("node0"),
                        .axis = "",
                        .collective = "",
                        .source = "",
                        .why = "its node",
                        .confidence = 0.125}};
  incident.ranks = {waiting(1), waiting(0)};
  incident.stacks.add(sample);
  incident.kernel_messages = {"nvme0: I/O timeout"};
  incident.action = "restart 1 of 3";
  incident.diagnosis = "GPU lost: its driver does not answer. Verdict: restart elsewhere";
  incident.moments = {{1'000, "last progress"}, {2'000, "suspected"}};
  incident.recovery = Recovery{.unix_ns = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
                               .over = true,
                               .attempts = 2,
                               .best_step = 47,
                               .restored_step = 40,
                               .interrupted_by = IncidentId(9)};
  return incident;
}

}  // namespace muster::coordinator
