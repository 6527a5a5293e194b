// Merges equal lines that many ranks wrote at about the same time. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/job/rank_set.h"
#include "common/time/time.h"

namespace muster::cli {

// A line, and the ranks that wrote it.
struct MergedLine {
  uint32_t attempt = 0;
  RankSet ranks;
  std::string text;
};

// A queue in which lines wait for equal lines of other ranks. The lines of each rank stay in order;
// a merged line has the position of the rank that wrote it first.
class LineMerger {
 public:
  // Adds a line of a rank. `unix_ns`: time at which the rank wrote the line; 0: unknown. `now`:
  // time at which the line was received. Returns the lines whose wait has ended.
  std::vector<MergedLine> add(uint32_t attempt, int32_t rank, int64_t unix_ns,
                              std::string_view text, Instant now);
  // Returns the lines whose wait has ended at `now`.
  std::vector<MergedLine> due(Instant now);
  // Returns all lines that still wait.
  std::vector<MergedLine> flush();

  bool empty() const { return waiting_.empty(); }

 private:
  struct Waiting {
    MergedLine line;
    uint64_t number = 0;  // sequence number, ascending in waiting_
    int64_t unix_ns = 0;
    Instant came{};
  };
  using Key = std::pair<uint32_t, std::string>;  // attempt, text

  void take_first(std::vector<MergedLine>& out);

  std::list<Waiting> waiting_;                          // waiting lines in the order of output
  std::map<Key, std::list<Waiting>::iterator> newest_;  // the newest waiting line of each text
  // the sequence number of each rank's last line
  std::map<int32_t, uint64_t> last_;
  uint64_t number_ = 0;
  size_t bytes_ = 0;
};

}  // namespace muster::cli
