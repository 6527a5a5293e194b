// Merges equal lines that many ranks wrote at about the same time. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/rank_set.h"
#include "common/time.h"

namespace muster::cli {

struct MergedLine {
  uint32_t attempt = 0;
  RankSet ranks;
  std::string text;
};

// Keeps the lines of a rank in order; a merged line has the position of the first of its ranks.
class LineMerger {
 public:
  // `unix_ns`: when the line was written; 0: unknown. `now`: when it was received. Returns the
  // lines that need not wait for other ranks any more.
  std::vector<MergedLine> add(uint32_t attempt, int32_t rank, int64_t unix_ns,
                              std::string_view text, Instant now);
  // Returns the lines that have waited long enough.
  std::vector<MergedLine> due(Instant now);
  // Returns all waiting lines.
  std::vector<MergedLine> flush();

  bool empty() const { return waiting_.empty(); }

 private:
  struct Waiting {
    MergedLine line;
    uint64_t number = 0;  // increases in the order of the list
    int64_t unix_ns = 0;
    Instant came{};
  };
  using Key = std::pair<uint32_t, std::string>;  // attempt, text

  void take_first(std::vector<MergedLine>& out);

  std::list<Waiting> waiting_;                          // in output order
  std::map<Key, std::list<Waiting>::iterator> newest_;  // the newest waiting line of each text
  std::map<int32_t, uint64_t> last_;                    // the number of each rank's last line
  uint64_t number_ = 0;
  size_t bytes_ = 0;
};

}  // namespace muster::cli
