// Splits the lines of a scenario into words, and converts words to values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/job/ids.h"

namespace muster::coordinator {

// Returns the words of a line. A "quoted part" is one word, and # starts a comment.
inline std::vector<std::string> split_words(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false;
  for (const char c : line) {
    if (c == '#' && !quoted) break;
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      if (!word.empty()) words.push_back(std::exchange(word, {}));
    } else {
      word += c;
    }
  }
  if (!word.empty()) words.push_back(word);
  return words;
}

// Returns the word after `key`; nullopt if there is none.
inline std::optional<std::string> value_of(const std::vector<std::string>& words,
                                           const std::string& key) {
  const auto it = std::find(words.begin(), words.end(), key);
  if (it == words.end() || it + 1 == words.end()) return std::nullopt;
  return *(it + 1);
}

template <class T>
T number_of(const std::vector<std::string>& words, const std::string& key, T otherwise) {
  const auto text = value_of(words, key);
  return text ? static_cast<T>(std::stod(*text)) : otherwise;
}

inline std::pair<JobId, Attempt> launch_of(const std::string& text) {
  const size_t slash = text.find('/');
  return {JobId(std::stoull(text.substr(0, slash))),
          Attempt(static_cast<uint32_t>(std::stoul(text.substr(slash + 1))))};
}

inline std::pair<int32_t, int32_t> range_of(const std::string& text) {
  const size_t dash = text.find('-');
  const int32_t first = std::stoi(text.substr(0, dash));
  return {first, dash == std::string::npos ? first : std::stoi(text.substr(dash + 1))};
}

}  // namespace muster::coordinator
