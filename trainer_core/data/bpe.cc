#include "trainer_core/data/bpe.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <queue>
#include <utility>

#include "common/text/absl_view.h"

namespace muster::trainer {
namespace {

// For shorter words, scanning all pairs for each merge is faster than a priority queue.
constexpr size_t kShortWordBytes = 48;
constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

void BpeMerges::add(int32_t left, int32_t right, uint32_t rank, int32_t merged) {
  merges_.insert_or_assign(pair_key(left, right), Merge{rank, merged});
}

const BpeMerges::Merge* BpeMerges::find(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeMerges::append(std::string_view word, std::vector<int32_t>& ids) const {
  if (!whole_words_.empty()) {
    if (const auto found = whole_words_.find(av(word)); found != whole_words_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  if (word.size() > kShortWordBytes) {
    merge_long(word, ids);
    return;
  }
  const size_t begin = ids.size();
  for (const char byte : word) ids.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
  merge_short(ids, begin);
}

void BpeMerges::merge_short(std::vector<int32_t>& ids, size_t begin) const {
  std::array<Merge, kShortWordBytes> pairs;  // the merge of token i with the next one
  const auto update_pair = [&](size_t i) {
    const Merge* merge =
        begin + i + 1 < ids.size() ? find(ids[begin + i], ids[begin + i + 1]) : nullptr;
    pairs[i] = merge == nullptr ? Merge{kNoRank, 0} : *merge;
  };
  size_t count = ids.size() - begin;
  for (size_t i = 0; i < count; ++i) update_pair(i);
  while (count > 1) {
    const auto* const best =
        std::min_element(pairs.begin(), pairs.begin() + count,
                         [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    if (best->rank == kNoRank) break;
    const auto at = static_cast<size_t>(best - pairs.begin());
    ids[begin + at] = best->id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(begin + at + 1));
    std::move(pairs.begin() + at + 2, pairs.begin() + count, pairs.begin() + at + 1);
    --count;
    update_pair(at);
    if (at > 0) update_pair(at - 1);
  }
}

void BpeMerges::merge_long(std::string_view word, std::vector<int32_t>& ids) const {
  struct Symbol {
    int32_t id;  // -1: merged into the previous symbol
    uint32_t next;
    uint32_t before;
  };
  struct Candidate {
    uint32_t rank;
    uint32_t at;
    int32_t left;
    int32_t right;
    int32_t merged;
    bool operator>(const Candidate& other) const {
      return std::pair(rank, at) > std::pair(other.rank, other.at);
    }
  };
  const auto size = static_cast<uint32_t>(word.size());
  std::vector<Symbol> symbols(size);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto add_candidate = [&](uint32_t at) {
    const uint32_t next = symbols[at].next;
    if (next == size) return;
    if (const Merge* merge = find(symbols[at].id, symbols[next].id); merge != nullptr)
      queue.push({merge->rank, at, symbols[at].id, symbols[next].id, merge->id});
  };
  for (uint32_t i = 0; i < size; ++i)
    symbols[i] = {byte_ids_[static_cast<uint8_t>(word[i])], i + 1, i - 1};
  for (uint32_t i = 0; i < size; ++i) add_candidate(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.at];
    // Skip the candidate if an adjacent merge has consumed one of its symbols.
    if (left.id != best.left || left.next == size || symbols[left.next].id != best.right) continue;
    left.id = best.merged;
    symbols[left.next].id = -1;
    left.next = symbols[left.next].next;
    if (left.next != size) symbols[left.next].before = best.at;
    add_candidate(best.at);
    if (best.at > 0) add_candidate(left.before);
  }
  for (uint32_t i = 0; i != size; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace muster::trainer
