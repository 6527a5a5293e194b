// Checks what libsentencepiece trusts in a model: a file from outside must not crash the process.
#pragma once

#include <string_view>

#include <absl/status/status.h>

namespace muster::trainer {

// Checks a serialized ModelProto (sentencepiece_model.proto). The library itself checks the message
// and the kinds of pieces. It does not check: a piece with a NUL, which ends its trie of symbols
// early and makes it throw; a piece that is not UTF-8; and a normalizer's table
// (`precompiled_charsmap`), which it reads in place wherever the offsets point. InvalidArgument
// names the wrong part.
absl::Status check_sentencepiece(std::string_view model);

// Checks a precompiled_charsmap: a u32 with the bytes of the trie, the trie, then strings that each
// end with a NUL. The trie is a double array of Darts-clone (https://github.com/s-yata/darts-clone,
// include/darts.h) in units of 32 bits:
//
//   bit 31       1: the unit is a leaf's value, the position of a string after the trie; 0:
//                otherwise
//   bits 10..30  offset, times 256 if bit 9 is set: children of unit i are at i ^ offset ^ byte,
//                its value is at i ^ offset
//   bit 9        see above
//   bit 8        the unit has a value
//   bits 0..7    the byte that leads to this unit
absl::Status check_charsmap(std::string_view charsmap);

}  // namespace muster::trainer
