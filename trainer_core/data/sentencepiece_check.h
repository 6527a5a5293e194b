// What libsentencepiece believes of a model without looking: a file from outside must not crash the process that loads it.
#pragma once

#include <string_view>

#include <absl/status/status.h>

namespace muster::trainer {

// Of a serialized ModelProto (sentencepiece_model.proto). The library checks the message and the kinds of pieces itself. What it
// does not: a piece with a NUL ends its trie of symbols early, which throws; one that is no UTF-8 is no text for whoever shows it; and
// the table of a normalizer (`precompiled_charsmap`) is read in place, wherever its offsets lead. InvalidArgument says which part is wrong.
absl::Status check_sentencepiece(std::string_view model);

// A precompiled_charsmap: u32 bytes of the trie, the trie, then strings that each end with a NUL. The trie is a double array of
// Darts-clone (https://github.com/s-yata/darts-clone, include/darts.h), units of 32 bits:
//
//   bit 31       the unit is a leaf's value: the place of a string behind the trie; of other units 0
//   bits 10..30  offset, times 256 with bit 9: children of unit i are at i ^ offset ^ byte, its value is at i ^ offset
//   bit 9        see above
//   bit 8        there is a value
//   bits 0..7    the byte by which this unit is reached
absl::Status check_charsmap(std::string_view charsmap);

}  // namespace muster::trainer
