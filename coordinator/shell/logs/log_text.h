// Reads of logs that cut no UTF-8 character in two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "coordinator/shell/logs/log_store.h"

namespace muster::coordinator {

// The part of a log of one rank.
struct LogPart {
  JobId job;
  Attempt attempt;
  Rank rank;
};

// Returns the number of bytes before a character at the end of `text` that is not complete.
size_t whole_characters(std::string_view text);

// Reads up to `bytes_max` bytes from `offset`, and ends with a whole character: reads some more
// bytes if `bytes_max` is less than one. `may_grow`: output may be appended; then a character of
// which the log has a part is not returned.
absl::StatusOr<std::string> read_text(LogStore& logs, const LogPart& part, uint64_t offset,
                                      size_t bytes_max, bool may_grow);

// Returns the offset of the first character at or after `offset`.
uint64_t next_character(LogStore& logs, const LogPart& part, uint64_t offset);

}  // namespace muster::coordinator
