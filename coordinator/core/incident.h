// What went wrong with a job, whom the evidence names, and what was done about it: the record that `muster incident show` prints.
// Values without behaviour; durable.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/rank_evidence.h"
#include "common/stack_tree.h"

namespace muster::coordinator {

// An incident's number, given by the coordinator: 1, 2, 3, … never reused within one state store.
using IncidentId = StrongId<struct IncidentIdTag, uint64_t>;
// Names one dump of an attempt's stacks among this coordinator's.
using DumpId = StrongId<struct DumpIdTag, uint64_t>;

enum class IncidentKind {
  kRankDied,     // a signal, or an exit code that nothing below explains
  kWorkerLost,   // a node is dead or cannot be reached
  kHang,         // alive and not progressing
  kSlowRank,     // holds the others up, and goes on
  kNotFinite,    // NaN or Inf
  kOutOfMemory,  // killed by the kernel for memory, or an allocation that failed
  kDiskFull,
  kNotStarted,  // ranks were not up in time
};
constexpr std::array<std::string_view, 8> kIncidentKindNames = {
    "rank died",  "worker lost",   "hang",      "slow rank",
    "not finite", "out of memory", "disk full", "not started"};

// One answer to "who did it".
struct Suspect {
  Rank rank{-1};  // -1: no single rank
  WorkerName worker;
  std::string
      axis;  // along which the others wait for it: "fsdp+context"; empty: no collective is involved
  std::string collective;  // "layer 3 mlp all-gather"
  std::string
      source;  // where it stands: "train.cc:210 in muster::trainer::run()"; empty until symbols are known
  std::string why;        // one clause: "never entered all-reduce 41, which 7 others wait in"
  double confidence = 0;  // 0 to 1; of all suspects together at most 1

  friend bool operator==(const Suspect&, const Suspect&) = default;
};

// Of a job, for who looks at the job.
struct IncidentNote {
  IncidentId id{0};  // 0: it had none
  std::string sentence;

  friend bool operator==(const IncidentNote&, const IncidentNote&) = default;
};

struct IncidentMoment {
  int64_t unix_ns = 0;
  std::string text;

  friend bool operator==(const IncidentMoment&, const IncidentMoment&) = default;
};

constexpr size_t kSuspectsMax = 5;
constexpr size_t kIncidentRanksMax = 64;  // whose evidence is kept
constexpr size_t kIncidentMomentsMax = 64;
constexpr size_t kIncidentsKeptMax = 1'000;  // of all jobs, oldest dropped first

struct Incident {
  IncidentId id;
  JobId job;
  Attempt attempt;
  std::string job_name;
  IncidentKind kind = IncidentKind::kHang;
  bool open = true;                 // a slow rank goes on being slow
  std::string sentence;             // names rank, node, axis, collective and source line
  std::vector<Suspect> suspects;    // the likeliest first; the others are the runners-up
  std::vector<RankEvidence> ranks;  // of suspects and of one rank per stack class
  StackTree stacks;                 // of the newest sample, symbols included once they are known
  std::vector<std::string> kernel_messages;
  std::string action;  // what the coordinator did: "restart 1 of 3", "none: training goes on"
  std::vector<IncidentMoment>
      moments;  // last progress, suspicion, dump, verdict, action: oldest first

  friend bool operator==(const Incident&, const Incident&) = default;
};

}  // namespace muster::coordinator
