// Determines which words of a plan's memory a step has written.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainer_core/base/memory_plan.h"

namespace muster::trainer {

// A signalling NaN that no operation computes.
constexpr uint32_t kUntouched = 0x7FA5A5A5;

// Returns the words of the arena, and those after it up to the end of its last page.
inline std::span<uint32_t> words_of(const Arena& arena) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t mapped = (arena.bytes() + page - 1) / page * page;
  return {static_cast<uint32_t*>(arena.begin()), mapped / sizeof(uint32_t)};
}

// Checks that every planned word was written, and that no other word was.
inline void expect_planned_words_written(const MemoryPlan& plan, std::span<const uint32_t> words,
                                         const std::string& what) {
  std::vector<bool> planned(words.size());
  for (const PlannedBuffer& buffer : plan.buffers()) {
    const size_t first = buffer.offset / sizeof(uint32_t);
    const size_t end = first + buffer.bytes / sizeof(uint32_t);
    for (size_t i = first; i < end; ++i) {
      planned[i] = true;
      ASSERT_NE(words[i], kUntouched)
          << what << ": element " << i - first << " of " << end - first << " of " << buffer.name;
    }
  }
  for (size_t i = 0; i < words.size(); ++i) {
    if (!planned[i]) {
      ASSERT_EQ(words[i], kUntouched) << what << ": word " << i;
    }
  }
}

}  // namespace muster::trainer
