// Packing of documents into sequences by best-fit decreasing: the documents, the longest first, go
// into the fullest sequence with room for them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "trainer_core/data/samples.h"

namespace muster::trainer {

// Returns the sequences in the order of their first documents. `positions` returns the positions
// that a piece takes; a piece has a member `document`.
template <class Piece, class Positions>
std::vector<std::vector<Piece>> best_fit_decreasing(std::vector<Piece> pieces, int32_t seq_len,
                                                    Positions positions) {
  std::ranges::stable_sort(pieces, std::greater<>(), positions);
  std::vector<std::vector<Piece>> sequences;
  std::set<std::pair<int32_t, size_t>> open;  // free positions, and the sequence
  for (const Piece& piece : pieces) {
    const int32_t wanted = std::invoke(positions, piece);
    int32_t room = seq_len;
    size_t sequence = sequences.size();
    if (const auto found = open.lower_bound({wanted, 0}); found != open.end()) {
      std::tie(room, sequence) = *found;
      open.erase(found);
    } else {
      sequences.emplace_back();
    }
    sequences[sequence].push_back(piece);
    if (room > wanted) open.emplace(room - wanted, sequence);
  }
  for (auto& sequence : sequences) std::ranges::sort(sequence, {}, &Piece::document);
  std::ranges::sort(sequences, {}, [](const auto& sequence) { return sequence[0].document; });
  return sequences;
}

// Makes the positions from `at` on a document of their own that counts in no loss.
inline void blank_from(size_t at, const SequenceSpans& out) {
  std::ranges::fill(out.tokens.subspan(at), 0);
  std::ranges::fill(out.targets.subspan(at), 0);
  std::ranges::fill(out.weights.subspan(at), 0.0F);
  if (!out.starts.empty()) std::ranges::fill(out.starts.subspan(at), static_cast<int32_t>(at));
}

// Returns a sequence for each piece.
template <class Piece>
std::vector<std::vector<Piece>> one_each(const std::vector<Piece>& pieces) {
  std::vector<std::vector<Piece>> sequences;
  for (const Piece& piece : pieces) sequences.push_back({piece});
  return sequences;
}

}  // namespace muster::trainer
