// What can happen to a worker. The shell turns the stream, processes, pages and timers into these
// values.
//
// The shell delivers messages of the newest stream only, in the order in which they came.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "common/time.h"
#include "worker/core/rank.h"

namespace muster::worker {

// The stream that a Connect action asked for exists and takes messages.
struct Connected {};

enum class StreamEnd {
  kBroken,   // or could not be opened: asking again may help
  kRefused,  // the coordinator does not take this worker as it is, its version for one
  kReplaced,  // the coordinator has another worker of this name, and has written off what this one runs
};

// The stream ended, or could not be opened.
struct Disconnected {
  StreamEnd end = StreamEnd::kBroken;
  std::string reason;
};

struct Registered {
  Epoch epoch;
  Duration heartbeat_interval{};
  StoreId store{};
};

struct StartRanks {
  Epoch epoch;
  Launch launch;
};

struct StopRanks {
  Epoch epoch;
  JobId job;
  Attempt attempt;
  Duration grace{};  // zero kills at once
  std::string reason;
  std::vector<Rank> ranks{};  // of this worker, whose ends the coordinator waits for
};

struct SaveCheckpoint {
  Epoch epoch;
  RankKey key;
};

struct ReportAcked {
  uint64_t report_id = 0;
};

struct RankStarted {
  RankKey key;
  int32_t pid = 0;
};

struct SpawnFailed {
  RankKey key;
  std::string reason;
};

struct RankReaped {
  RankKey key;
  int32_t exit_code = 0;                 // -1 when killed by a signal
  int32_t signal = 0;                    // 0 when it left by itself
  int64_t last_step = -1;                // from its page, read after its death
  std::string detail;                    // the last line of its output
  std::optional<RankFigures> figures{};  // its page's last ones, if it could be read
};

// Answers a ForgetRank action: the coordinator has acknowledged the whole of the rank's log.
struct LogSettled {
  RankKey key;
};

// The folders that earlier lives of this worker left under its work directory. Before anything is started.
struct LaunchesFound {
  std::vector<LaunchKey> oldest_first;
};

// Answers a ReadPages action: the pages that could be read. A rank whose page is missing, torn or
// another launch's is left out.
struct PagesRead {
  struct Page {
    RankKey key;
    RankFigures figures;
  };
  std::vector<Page> pages;
};

// A deadline that next_deadline() named may have passed.
struct Tick {};

// The operator wants the worker to leave. The second one kills what is still running.
struct ShutdownRequested {};

using Event = std::variant<Connected, Disconnected, Registered, StartRanks, StopRanks,
                           SaveCheckpoint, ReportAcked, LogSettled, LaunchesFound, RankStarted,
                           SpawnFailed, RankReaped, PagesRead, Tick, ShutdownRequested>;

}  // namespace muster::worker
