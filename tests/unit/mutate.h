// Random damage to bytes from outside: a short fuzzing run, the same each time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>

namespace muster {

// Each call of mutate() draws from the same generator: a loop of calls is one reproducible run.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : generator_(seed) {}

  uint64_t draw(uint64_t below) { return generator_() % below; }

  // Returns `bytes` with one to four changes: bits, bytes, numbers, pieces.
  std::string mutate(std::string bytes) {
    for (uint64_t n = 1 + draw(4); n > 0; --n) change(bytes);
    return bytes;
  }

 private:
  // Values at which parsers of numbers fail, and ends of nesting, strings and types.
  static constexpr std::array<std::string_view, 24> kWords = {"0",
                                                              "-1",
                                                              "1.5",
                                                              "1e300",
                                                              "-1e-300",
                                                              "2147483648",
                                                              "4294967296",
                                                              "9223372036854775807",
                                                              "9223372036854775808",
                                                              "18446744073709551615",
                                                              "18446744073709551616",
                                                              "null",
                                                              "true",
                                                              "\"\"",
                                                              "\"x\"",
                                                              "[]",
                                                              "{}",
                                                              "[[[[[[[[",
                                                              "\"",
                                                              "\\u0000",
                                                              "\xff\xfe",
                                                              ",",
                                                              ":",
                                                              "}"};

  void change(std::string& bytes) {
    if (bytes.empty()) return;
    const size_t at = draw(bytes.size());
    switch (draw(8)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << draw(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(draw(256));
        break;
      case 2:
        bytes.erase(at, 1 + draw(16));
        break;
      case 3:
        bytes.insert(at, bytes.substr(draw(bytes.size()), 1 + draw(32)));
        break;
      case 4:
        bytes.insert(at, kWords[draw(kWords.size())]);
        break;
      case 5:
        replace_number(bytes, at);
        break;
      case 6:
        overwrite_word(bytes, at);
        break;
      default:
        bytes.resize(draw(8) == 0 ? at : bytes.size());
    }
  }

  // The decimal number at or after `at`.
  void replace_number(std::string& bytes, size_t at) {
    constexpr std::string_view kDigits = "0123456789";
    const size_t begin = bytes.find_first_of(kDigits, at);
    if (begin == std::string::npos) return;
    const size_t end = std::min(bytes.find_first_not_of(kDigits, begin), bytes.size());
    bytes.replace(begin, end - begin, kWords[draw(kWords.size())]);
  }

  // An extreme little-endian integer of 4 or 8 bytes.
  void overwrite_word(std::string& bytes, size_t at) {
    constexpr std::array<uint64_t, 6> kNumbers = {0, 1, 0x7FFF'FFFF, ~0ULL >> 1, ~0ULL - 7, ~0ULL};
    const uint64_t number = kNumbers[draw(kNumbers.size())];
    const size_t size = draw(2) == 0 ? 4 : 8;
    const size_t aligned = at / 4 * 4;
    if (aligned + size <= bytes.size()) std::memcpy(bytes.data() + aligned, &number, size);
  }

  std::mt19937_64 generator_;
};

}  // namespace muster
