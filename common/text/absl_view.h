// Conversions between std::string_view and absl::string_view. The two types differ where the
// distribution built Abseil for C++14 (Debian 12): there absl::StrCat and similar functions do not
// accept a std::string_view. Where both are one type, the conversions cost nothing.
#pragma once

#include <string_view>

#include <absl/strings/string_view.h>

namespace muster {

// Returns `text` as Abseil's view. Refers to the same characters.
inline absl::string_view av(std::string_view text) { return {text.data(), text.size()}; }
// Returns `text` as the standard library's view. Refers to the same characters.
inline std::string_view sv(absl::string_view text) { return {text.data(), text.size()}; }

}  // namespace muster
