// GPT-2's alphabet, which represents bytes by printable characters: bytes that are printable in
// Latin-1 represent themselves, and the other bytes, in ascending order, are U+0100, U+0101, ….
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster::trainer {

// Returns the bytes that the characters of `text` represent; nullopt if a character is not in the
// alphabet.
std::optional<std::string> bytes_of_alphabet(std::string_view text);

}  // namespace muster::trainer
