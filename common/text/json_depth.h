// A limit on the nesting of JSON texts from outside: printing and copying a parsed value is
// recursive, so that deep values overflow the stack.
#pragma once

#include <string_view>

namespace muster {

// More than any config or request needs.
constexpr int kJsonDepthMax = 64;

// Returns whether arrays and objects are nested at most kJsonDepthMax deep in `text`. The text need
// not be valid.
inline bool is_shallow_json(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kJsonDepthMax) return false;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return true;
}

}  // namespace muster
