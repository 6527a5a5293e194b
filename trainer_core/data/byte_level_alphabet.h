// GPT-2's alphabet, which writes bytes as printable characters: bytes that are printable in Latin-1
// stand for themselves, the others are numbered from U+0100 on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster::trainer {

// Returns the bytes that `text` stands for; nullopt if a character is not in the alphabet.
std::optional<std::string> bytes_of_alphabet(std::string_view text);

}  // namespace muster::trainer
