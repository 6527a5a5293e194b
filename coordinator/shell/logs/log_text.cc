#include "coordinator/shell/logs/log_text.h"

#include <algorithm>

namespace muster::coordinator {
namespace {

constexpr size_t kCharacterBytesMax = 4;

bool continues_character(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

// Returns the length of the character that begins with `lead`; 1 if none begins with it.
size_t character_length(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  if (byte < 0xC2 || byte >= 0xF5) return 1;
  return byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace

size_t whole_characters(std::string_view text) {
  for (size_t back = 1; back <= std::min(text.size(), kCharacterBytesMax - 1); ++back) {
    const char c = text[text.size() - back];
    if (continues_character(c)) continue;
    return character_length(c) > back ? text.size() - back : text.size();
  }
  return text.size();
}

absl::StatusOr<std::string> read_text(LogStore& logs, const LogPart& part, uint64_t offset,
                                      size_t bytes_max, bool may_grow) {
  auto data = logs.read(part.job, part.attempt, part.rank, offset, bytes_max);
  if (!data.ok() || data->empty()) return data;
  if (const size_t whole = whole_characters(*data); whole > 0) {
    // The last bytes of a log that does not grow are what they are.
    const bool is_cut = may_grow || data->size() == bytes_max;
    if (is_cut) data->resize(whole);
    return data;
  }
  const size_t length = character_length(data->front());
  data = logs.read(part.job, part.attempt, part.rank, offset, length);
  if (data.ok() && data->size() < length && may_grow) data->clear();
  return data;
}

uint64_t next_character(LogStore& logs, const LogPart& part, uint64_t offset) {
  if (offset == 0) return 0;
  const auto data = logs.read(part.job, part.attempt, part.rank, offset, kCharacterBytesMax - 1);
  if (!data.ok()) return offset;
  size_t skipped = 0;
  while (skipped < data->size() && continues_character((*data)[skipped])) ++skipped;
  // Bytes that are no text have no characters.
  return skipped == data->size() ? offset : offset + skipped;
}

}  // namespace muster::coordinator
