// Splits a range of independent items among threads: with OpenMP if enabled, else serially. The
// split depends only on the two counts, so results do, too.
#pragma once

#include <algorithm>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "common/self_stacks.h"

namespace muster::trainer::cpu {

// Fewer elements are not worth waking a thread (a few microseconds of work).
constexpr int64_t kElementsPerThreadMin = 8192;

// Calls body(begin, end, part) for contiguous parts of [0, items), at most `threads` of them, part
// = 0, 1, …
template <class Body>
void parallel_for(int threads, int64_t items, const Body& body) {
  const int64_t parts = std::min<int64_t>(threads, items);
  if (parts <= 1) {
    if (items > 0) body(int64_t{0}, items, 0);
    return;
  }
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(static_cast <int>(parts))
#endif
  for (int64_t part = 0; part < parts; ++part) {
    answer_for_stack();
    body(items * part / parts, items * (part + 1) / parts, static_cast<int>(part));
  }
}

// Calls body(part, parts) for every part concurrently, in at most `threads` threads, which may wait
// for one another at team_barrier(). For work whose stages depend on each other: a barrier costs
// half of leaving one parallel_for and entering the next.
template <class Body>
void parallel_team([[maybe_unused]] int threads, const Body& body) {
#ifdef _OPENMP
  if (threads > 1) {
#pragma omp parallel num_threads(threads)
    {
      answer_for_stack();
      body(omp_get_thread_num(), omp_get_num_threads());
    }
    return;
  }
#endif
  body(0, 1);
}

// Every thread of a parallel_team must call this equally often.
inline void team_barrier() {
#ifdef _OPENMP
#pragma omp barrier
#endif
}

// Returns the number of threads that pay off for `elements` of light work.
inline int useful_threads(int threads, int64_t elements) {
  return static_cast<int>(std::clamp<int64_t>(elements / kElementsPerThreadMin, 1, threads));
}

}  // namespace muster::trainer::cpu
