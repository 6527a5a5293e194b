// Abseil's string_view is a type of its own where the distribution built Abseil for C++14 (Debian 12); there,
// absl::StrCat and its kin do not take a std::string_view. Where both are one type, this costs nothing.
#pragma once

#include <string_view>

#include <absl/strings/string_view.h>

namespace muster {

// The same characters, for Abseil's functions. Refers to what `text` refers to.
inline absl::string_view av(std::string_view text) { return {text.data(), text.size()}; }
// And back.
inline std::string_view sv(absl::string_view text) { return {text.data(), text.size()}; }

}  // namespace muster
