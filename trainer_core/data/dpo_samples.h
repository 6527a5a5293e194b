// Sequences for preference tuning. The documents of the data set are pairs of answers
// (text/dpo_sample.h): the tokens of the prompt with the chosen answer, then those of the prompt
// with the rejected one. The weights of their tokens are marks:
//
//   0   a token of the prompt           kChosenBegins    the first token of a pair
//   1   a token of an answer            kRejectedBegins  the first token of the second part
//
// A sequence has both parts of a pair, one after the other; they do not attend to each other. With
// packing, several pairs share a sequence by best-fit decreasing (sft_samples.h).
#pragma once

#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>

#include "trainer_core/data/corpus.h"
#include "trainer_core/data/samples.h"

namespace muster::trainer {

constexpr float kChosenBegins = 2;
constexpr float kRejectedBegins = 3;

// The pairs of a corpus, by what became of them.
struct DpoCounts {
  uint64_t pairs = 0;      // in the corpus
  uint64_t too_long = 0;   // left out, because both parts have more than S positions
  uint64_t positions = 0;  // taken by pairs, in all sequences
  int64_t pairs_max = 0;   // the maximum number of pairs in a sequence
};

// A set of sequences, and the account of its pairs. The weight of a target is a label: k + 1 if it
// belongs to the chosen answer of pair k of its sequence, -(k + 1) if it belongs to the rejected
// one, otherwise 0.
struct DpoSamples {
  std::unique_ptr<Samples> samples;
  DpoCounts counts;
};

// Divides a corpus into sequences of `seq_len` tokens. Reads the marks of all pairs. The number of
// sequences may be 0. Returns the errors of ShardReader::read(), and InvalidArgument with the pair
// whose marks are not as above.
absl::StatusOr<DpoSamples> make_dpo_samples(Corpus corpus, int32_t seq_len, bool packs);

}  // namespace muster::trainer
