// Simulated ranks on a mesh, for the tests of blame. The ranks run the collectives of the trainer's
// step until they cannot continue, because one or more of them are broken. Groups and channels are
// those of trainer_core/comm/process_groups and trainer_core/parallel.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "common/job/mesh.h"
#include "coordinator/core/blame/blame.h"

namespace muster::coordinator {

enum class Break {
  kStopped,      // SIGSTOP at any place
  kDebugger,     // stopped at any place, and held by a debugger
  kZombie,       // the process has ended and is not reaped
  kGone,         // the rank's worker does not answer
  kLoader,       // sleeps in the data loader
  kFsync,        // hangs in fsync while it saves
  kLock,         // the main thread waits for a lock between two collectives
  kBusy,         // the main thread computes forever between two collectives
  kSkips,        // skips a collective
  kOtherCall,    // enters another collective of the same group
  kOtherGroup,   // enters a collective of another group
  kNeverJoins,   // never enters its first collective
  kInside,       // stands still inside a collective that all members entered
  kStopsInside,  // is stopped inside such a collective
  kTransport,    // no rank is to blame: a collective does not complete
};
constexpr std::array<std::string_view, 15> kBreakNames = {
    "stopped",     "debugger",    "zombie", "gone",         "loader",
    "fsync",       "lock",        "busy",   "skips",        "other call",
    "other group", "never joins", "inside", "stops inside", "transport"};

struct BrokenRank {
  int32_t rank = 0;
  Break how = Break::kStopped;
};

class HangWorld {
 public:
  HangWorld(const Mesh& mesh, uint64_t seed);

  // Breaks the given ranks at random places of their second step, and runs until no rank can
  // continue. Returns false if a rank's step has no place for its kind of break.
  bool run(const std::vector<BrokenRank>& broken);
  // Returns whether the rank reached the place where it breaks.
  bool is_broken(int32_t rank) const;
  // Returns the evidence at the end of run().
  BlameInput describe(bool with_stacks) const;

 private:
  enum Thread { kMain, kStream, kSender, kReceiver, kThreads };

  struct Call {
    size_t group = 0;
    CollectiveKind kind = CollectiveKind::kNone;
    std::string name;
    uint64_t bytes = 0;
  };
  struct Op {
    enum class What { kCall, kEnqueue, kWait, kCompute, kPhase, kStepDone };
    What what = What::kCompute;
    Thread thread = kMain;
    Call call;
    Phase phase = Phase::kInit;
  };
  struct Group {
    std::string name;
    uint32_t id = 0;
    size_t size = 0;
    std::vector<std::vector<Call>> entered;  // calls by sequence number
    std::map<std::string, int> messages;     // number of ends that have arrived, by message name
    bool never_completes = false;            // whether the newest collective never completes
  };
  struct Worker {  // one thread of a rank
    std::vector<Call> queue;
    size_t done = 0;
    bool inside = false;
  };
  struct Model {
    std::vector<Op> program;
    size_t at = 0;
    std::array<Worker, kThreads> threads;
    std::array<size_t, kThreads> enqueued{};
    bool halted = false;      // no thread continues
    bool main_stuck = false;  // the main thread does not continue
    std::optional<Break> how;
    size_t breaks_at = 0;
    std::map<size_t, GroupEvidence> shown;
    Phase phase = Phase::kInit;
    int64_t step = 0;
  };

  static constexpr int kSteps = 3, kLayers = 2, kMicroBatches = 2;

  size_t group_of(int32_t rank, AxisSet axes, int channel);
  bool has(AxisSet axes) const;
  void write_program(int32_t rank);
  void write_layer(int32_t rank, int layer, bool forward, std::vector<Op>& out);
  void call(int32_t rank, std::vector<Op>& out, Thread thread, AxisSet axes, int channel,
            CollectiveKind kind, std::string name, uint64_t bytes);
  std::optional<size_t> place_to_break(const Model& model, Break how, int step);
  void break_at(Model& model);
  bool advance(int32_t rank);
  bool advance_thread(Model& model, Thread thread);
  bool enter_or_complete(Model& model, Worker& worker, const Call& call);
  bool is_complete(const Group& group, const Call& call, uint64_t seq) const;
  RankEvidence evidence_of(int32_t rank) const;
  std::vector<std::string> stack_of(int32_t rank) const;

  Mesh mesh_;
  std::mt19937_64 random_;
  std::vector<Group> groups_;
  std::map<std::pair<std::string, uint32_t>, size_t> group_index_;
  std::vector<Model> ranks_;
};

}  // namespace muster::coordinator
