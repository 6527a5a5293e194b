// Searches texts for words.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace muster {

// Returns whether `text` contains one of `words`, a range of std::string_view.
template <class Words>
bool has_any(std::string_view text, const Words& words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    return text.find(word) != std::string_view::npos;
  });
}
inline bool has_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return has_any<std::initializer_list<std::string_view>>(text, words);
}

}  // namespace muster
