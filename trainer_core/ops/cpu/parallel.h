// Splits a range of independent items among OpenMP threads; without OpenMP, the calling thread
// handles all items. The split depends only on the numbers of threads and items, so the same
// numbers give the same results.
#pragma once

#include <algorithm>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "common/stacks/self_stacks.h"

namespace muster::trainer::cpu {

// Minimum number of elements per thread. Fewer elements are a few microseconds of work, for which
// waking a thread does not pay off.
constexpr int64_t kElementsPerThreadMin = 8192;

// Calls body(begin, end, part) for consecutive parts of [0, items), concurrently. There are at most
// `threads` parts, with the numbers part = 0, 1, …
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

// Calls body(part, parts) once on each of at most `threads` concurrent threads. The calls may wait
// for each other at team_barrier(). For work in stages that depend on each other: a barrier takes
// half of the time of ending one parallel_for() and starting the next.
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

// Waits until all threads of a parallel_team() have called it. Requires that all of them call it
// equally often.
inline void team_barrier() {
#ifdef _OPENMP
#pragma omp barrier
#endif
}

// Returns the number of threads, at most `threads`, that pay off for simple operations on
// `elements` elements.
inline int useful_threads(int threads, int64_t elements) {
  return static_cast<int>(std::clamp<int64_t>(elements / kElementsPerThreadMin, 1, threads));
}

}  // namespace muster::trainer::cpu
