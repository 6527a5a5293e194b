// Sequences for supervised fine-tuning. Samples are the documents of a corpus, and a sequence has
// complete samples: it never continues one of another sequence. A sample of n tokens takes n - 1
// positions, because its last token is only a target.
//
//   packed       Several samples share a sequence without attending to each other. Best-fit
//                decreasing: the samples, the longest first, go into the fullest sequence with room
//                for them. The rest of a sequence is padding of weight 0.
//   not packed   One sample per sequence, and padding.
//
// The sequences depend only on the corpus and the options.
#pragma once

#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>

#include "trainer_core/data/corpus.h"
#include "trainer_core/data/samples.h"

namespace muster::trainer {

struct SftOptions {
  bool packs = true;
  // A sample with more than S + 1 tokens is left out; false: it ends after S + 1 tokens.
  bool drops_long = false;
  // Targets have the corpus' weights; false: all targets of a sample count alike.
  bool completion_only = true;
  // The weights of a sample's targets are divided by the number of those above 0, so that samples
  // count alike, whatever their lengths.
  bool averages_samples = false;
};

// The samples of a corpus, by what became of them.
struct SftCounts {
  uint64_t samples = 0;    // in the corpus
  uint64_t too_long = 0;   // have more than S + 1 tokens: truncated or left out
  uint64_t unlearned = 0;  // left out, because no target within the sequence has a weight
  uint64_t positions = 0;  // taken by samples, in all sequences
};

// A set of sequences, and the account of its samples.
struct SftSamples {
  std::unique_ptr<Samples> samples;
  SftCounts counts;
};

// Divides a corpus into sequences of `seq_len` tokens. Reads the lengths of all samples, and the
// weights of those that are too long. The number of sequences may be 0. Returns the errors of
// ShardReader::read().
absl::StatusOr<SftSamples> make_sft_samples(Corpus corpus, int32_t seq_len,
                                            const SftOptions& options);

}  // namespace muster::trainer
