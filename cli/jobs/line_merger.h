// One line where many ranks wrote the same at about the same time. Pure; one thread at a time.
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

// The lines of a rank stay in their order; a line of many ranks stands where the first of them wrote it.
class LineMerger {
 public:
  // `unix_ns`: when the line was written; 0: nobody knows. `now`: when it came here. Returns what need wait for no other rank any more.
  std::vector<MergedLine> add(uint32_t attempt, int32_t rank, int64_t unix_ns,
                              std::string_view text, Instant now);
  // What has waited here for long enough.
  std::vector<MergedLine> due(Instant now);
  // All.
  std::vector<MergedLine> flush();

  bool empty() const { return waiting_.empty(); }

 private:
  struct Waiting {
    MergedLine line;
    uint64_t number = 0;  // growing in the order of the list
    int64_t unix_ns = 0;
    Instant came{};
  };
  using Key = std::pair<uint32_t, std::string>;  // attempt, text

  void take_first(std::vector<MergedLine>& out);

  std::list<Waiting> waiting_;                          // in the order in which they will be told
  std::map<Key, std::list<Waiting>::iterator> newest_;  // of each text
  std::map<int32_t, uint64_t> last_;                    // the number of each rank's last line
  uint64_t number_ = 0;
  size_t bytes_ = 0;
};

}  // namespace muster::cli
