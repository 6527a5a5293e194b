// Checks the parts of a model that libsentencepiece trusts, so that no model file can crash the
// process.
#pragma once

#include <string_view>

#include <absl/status/status.h>

namespace muster::trainer {

// Checks a serialized ModelProto (sentencepiece_model.proto) for three defects that the library
// accepts. The first is a piece with a NUL, which ends the library's trie of symbols early and
// makes it throw. The second is a piece that is not UTF-8. The third is a damaged table of the
// normalizer (`precompiled_charsmap`), whose offsets the library follows without a bounds check.
// The library itself checks the message and the kinds of pieces. Returns InvalidArgument with the
// wrong part.
absl::Status check_sentencepiece(std::string_view model);

// Checks a precompiled_charsmap. It consists of a u32 with the trie's size in bytes, the trie, and
// strings that each end with a NUL. The trie is a double array of Darts-clone
// (https://github.com/s-yata/darts-clone, include/darts.h) in units of 32 bits:
//
//   bit 31       1: the unit is the value of a leaf: the offset of a string after the trie
//   bits 10..30  the unit's offset, times 256 if bit 9 is set: the children of unit i are at
//                i ^ offset ^ byte, and its value is at i ^ offset
//   bit 9        multiplies the offset by 256
//   bit 8        the unit has a value
//   bits 0..7    the byte that leads to this unit
absl::Status check_charsmap(std::string_view charsmap);

}  // namespace muster::trainer
