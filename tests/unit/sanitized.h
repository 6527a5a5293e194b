// Whether the tests run under a sanitizer, where each takes many times as long. Long sweeps
// then run a part of their cases: which memory and which locks a case uses hardly depends on the
// others.
#pragma once

namespace muster {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace muster
