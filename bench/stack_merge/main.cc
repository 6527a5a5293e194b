// Merges the stacks of very many synthetic ranks as the coordinator does, for bench/stack_merge.py.
//
//   stack_merge RANKS near|far [SEED]
//
// Each worker has 8 ranks of 31 threads: a main thread 30 frames deep that waits in one of a few
// collectives (a single rank sleeps elsewhere), 16 threads of a pool that spin at one of 32
// addresses, two communication threads, four data readers and eight threads of libraries. `near`:
// the ranks of a worker are consecutive; `far`: they are RANKS / 8 apart, the worst case of ranges.
// Workers answer in random order. Prints JSON: seconds of each stage on one core, the size of the
// result, and the peak memory.
//
//   make      one worker's sample to its tree (the mean of all; each worker does its own)
//   take      messages to trees: all bounds checked
//   merge     those trees into one
//   classes   of all threads
//   symbols   one lookup per distinct frame of a class, and its text
//   blame     pages with four groups each and these stacks, which names the sleeping rank
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/stacks/stack_forest.h"
#include "common/time/time.h"
#include "coordinator/core/blame/blame.h"

namespace muster {
namespace {

using Random = std::mt19937_64;

constexpr int32_t kRanksPerWorker = 8, kMainFrames = 30, kPoolThreads = 16, kSpinAddresses = 32,
                  kFsdp = 64;
// This many workers' trees are in memory at once, as when a dump's answers arrive together.
constexpr size_t kWorkersAtOnce = 256;

enum Module : uint32_t { kTrainer, kLibc, kGomp, kGloo, kStdcxx };

class Workload {
 public:
  Workload(int32_t ranks, bool near, uint64_t seed)
      : ranks_(ranks), workers_(ranks / kRanksPerWorker), near_(near), random_(seed) {
    culprit_ = static_cast<int32_t>(random_() % static_cast<uint64_t>(ranks));
  }

  std::vector<int32_t> workers() {
    std::vector<int32_t> order(static_cast<size_t>(workers_));
    for (int32_t i = 0; i < workers_; ++i) order[static_cast<size_t>(i)] = i;
    std::shuffle(order.begin(), order.end(), random_);
    return order;
  }

  int32_t culprit() const { return culprit_; }

  // The culprit has not entered its group's newest collective; ranks that meet it later wait, too.
  coordinator::BlameInput pages() const {
    coordinator::BlameInput input;
    for (int32_t rank = 0; rank < ranks_; ++rank) {
      const int32_t worker = near_ ? rank / kRanksPerWorker : rank % workers_;
      input.placement.push_back(
          {Rank(rank), WorkerName("node" + std::to_string(worker)), 0, Incarnation(1)});
      RankEvidence evidence;
      evidence.rank = rank;
      evidence.pid = 1;
      evidence.phase = Phase::kStep;
      evidence.process_state = 'S';
      const bool meets = rank / kRanksPerWorker == culprit_ / kRanksPerWorker;
      evidence.groups = {
          group("tensor", kRanksPerWorker, rank - rank % kRanksPerWorker,
                rank == culprit_ ? 70 : 71, meets ? 70 : 71),
          group("fsdp#1", kFsdp, rank - rank / kRanksPerWorker % kFsdp * kRanksPerWorker, 40, 40),
          group("data#1", ranks_, 0, 9, 9), group("all", ranks_, 0, meets ? 3 : 4, 3)};
      input.later.ranks.push_back(std::move(evidence));
    }
    return input;
  }

  StackSample sample(int32_t worker) {
    StackSample sample;
    for (const char* path :
         {"/opt/muster/bin/muster-trainer", "/usr/lib/libc.so.6", "/usr/lib/libgomp.so.1",
          "/usr/lib/libgloo.so", "/usr/lib/libstdc++.so.6"})
      sample.modules.push_back(
          {.build_id = std::string(40, static_cast<char>('a' + sample.modules.size())),
           .path = path});
    for (int32_t i = 0; i < kRanksPerWorker; ++i) {
      RankStacks rank;
      rank.rank = near_ ? worker * kRanksPerWorker + i : worker + i * workers_;
      rank.threads.push_back(main_thread(rank.rank));
      for (int t = 0; t < kPoolThreads; ++t) {
        rank.threads.push_back(thread("muster-trainer", {{kLibc, 0x100}, {kGomp, 0x40}}));
        rank.threads.back().frames.push_back(frame_of(kGomp, 0x1000 + random_() % kSpinAddresses));
      }
      for (int t = 0; t < 2; ++t) rank.threads.push_back(depth_of("comm", 14, kGloo, 0x2000));
      for (int t = 0; t < 4; ++t) rank.threads.push_back(depth_of("data", 12, kTrainer, 0x3000));
      for (int t = 0; t < 8; ++t)
        rank.threads.push_back(
            depth_of("lib", 9, kStdcxx, 0x4000 + static_cast<uint64_t>(t) * 0x100));
      sample.ranks.push_back(std::move(rank));
    }
    return sample;
  }

 private:
  static StackFrame frame_of(Module module, uint64_t address) {
    StackFrame frame;
    frame.module = module;
    frame.address = address;
    return frame;
  }
  static ThreadStack thread(const char* name,
                            std::initializer_list<std::pair<Module, uint64_t>> places) {
    ThreadStack thread;
    thread.name = name;
    for (const auto& [module, address] : places) thread.frames.push_back(frame_of(module, address));
    return thread;
  }
  static ThreadStack depth_of(const char* name, int depth, Module module, uint64_t base) {
    ThreadStack thread;
    thread.name = name;
    for (int i = 0; i < depth; ++i)
      thread.frames.push_back(frame_of(module, base + static_cast<uint64_t>(i)));
    return thread;
  }
  static GroupEvidence group(const char* name, int32_t members, int32_t id, uint64_t started,
                             uint64_t completed) {
    GroupEvidence group;
    group.name = name;
    group.members = static_cast<uint32_t>(members);
    group.id = static_cast<uint32_t>(id);
    group.enqueued = group.started = started;
    group.completed = completed;
    group.kind = CollectiveKind::kAllReduce;
    group.collective = "layer 3 mlp";
    return group;
  }
  // Most ranks wait in one layer's collective, some in the previous one, at one of four places in
  // its rounds.
  ThreadStack main_thread(int32_t rank) {
    const uint64_t layer = random_() % 16 == 0 ? 1 : 0;
    ThreadStack thread = depth_of("main", kMainFrames - 3, kTrainer, 0x5000);
    if (rank == culprit_) {
      thread.frames.push_back(frame_of(kLibc, 0x900));  // asleep
      return thread;
    }
    thread.frames.push_back(frame_of(kTrainer, 0x6000 + layer));
    thread.frames.push_back(frame_of(kGloo, 0x7000 + random_() % 4));
    thread.frames.push_back(frame_of(kLibc, 0x800));
    return thread;
  }

  const int32_t ranks_, workers_;
  const bool near_;
  Random random_;
  int32_t culprit_ = 0;
};

// Returns a synthetic answer of a symbolizer.
FrameSymbol symbol_of(const StackModule& module, uint64_t address) {
  return {.function =
              "muster::trainer::function_" + std::to_string(address) + "(int, std::vector<float>&)",
          .file = "/src/" + module.path.substr(module.path.rfind('/') + 1) + ".cc",
          .line = static_cast<int32_t>(address % 1000)};
}

double cpu_seconds_now() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Measures one stage by both clocks.
struct Stopwatch {
  double seconds = 0, cpu_seconds = 0;

  template <class F>
  void add(F&& body) {
    const Instant start = monotonic_now();
    const double cpu_start = cpu_seconds_now();
    body();
    cpu_seconds += cpu_seconds_now() - cpu_start;
    seconds += to_seconds(monotonic_now() - start);
  }
};

nlohmann::json run(int32_t ranks, bool near, uint64_t seed) {
  Workload workload(ranks, near, seed);
  Stopwatch make, take, merge, classes, symbols, blaming;
  StackForest forest;
  const std::vector<int32_t> workers = workload.workers();
  for (size_t begin = 0; begin < workers.size(); begin += kWorkersAtOnce) {
    std::vector<StackTree::Parts> messages;
    std::vector<StackTree> trees;
    for (size_t i = begin; i < std::min(workers.size(), begin + kWorkersAtOnce); ++i) {
      const StackSample sample = workload.sample(workers[i]);
      StackTree tree;
      make.add([&] { tree.add(sample); });
      messages.push_back(tree.parts());
    }
    take.add([&] {
      for (const StackTree::Parts& parts : messages) trees.push_back(StackTree::of(parts).value());
    });
    merge.add([&] {
      for (StackTree& tree : trees) forest.add(std::move(tree));
    });
  }
  StackTree all;
  merge.add([&] { all = forest.total(); });
  std::vector<StackTree::Class> found;
  classes.add([&] { found = all.classes(""); });
  size_t places = 0, text_bytes = 0;
  symbols.add([&] {
    std::set<uint32_t> frames;
    for (const StackTree::Class& one : found) frames.insert(one.frames.begin(), one.frames.end());
    places = frames.size();
    for (const uint32_t frame : frames) {
      const StackFrame& at = all.frames()[frame];
      all.set_symbol(frame, symbol_of(all.modules()[at.module], at.address));
    }
    for (const StackTree::Class& one : found)
      for (const uint32_t frame : one.frames) text_bytes += all.frame_text(frame).size();
  });
  coordinator::BlameInput input = workload.pages();
  input.later.stacks = all;
  coordinator::Blame blame;
  blaming.add([&] { blame = coordinator::blame(input); });
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  size_t main_classes = 0;
  for (const StackTree::Class& one : found) main_classes += one.thread == "main" ? 1U : 0U;
  return {{"ranks", ranks},
          {"workers", workers.size()},
          {"threads_per_rank", 31},
          {"worker_ranks_are", near ? "near" : "far"},
          {"make_seconds_per_worker", make.seconds / static_cast<double>(workers.size())},
          {"take_seconds", take.seconds},
          {"merge_seconds", merge.seconds},
          {"classes_seconds", classes.seconds},
          {"symbols_seconds", symbols.seconds},
          {"seconds", take.seconds + merge.seconds + classes.seconds + symbols.seconds},
          {"cpu_seconds",
           take.cpu_seconds + merge.cpu_seconds + classes.cpu_seconds + symbols.cpu_seconds},
          {"blame_seconds", blaming.seconds},
          {"blame_is_right", blame.suspects[0].rank.value() == workload.culprit()},
          {"nodes", all.nodes().size()},
          {"classes", found.size()},
          {"main_classes", main_classes},
          {"places", places},
          {"text_bytes", text_bytes},
          {"dropped", all.dropped()},
          {"peak_mib", usage.ru_maxrss / 1024}};
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  const int32_t ranks = argc > 2 ? std::atoi(argv[1]) : 0;
  const std::string_view where = argc > 2 ? argv[2] : "";
  if (ranks < muster::kRanksPerWorker || ranks % muster::kRanksPerWorker != 0 ||
      (where != "near" && where != "far")) {
    std::cerr << "usage: stack_merge RANKS near|far [SEED], RANKS a multiple of "
              << muster::kRanksPerWorker << "\n";
    return 2;
  }
  const uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
  std::cout << muster::run(ranks, where == "near", seed).dump(2) << "\n";
}
