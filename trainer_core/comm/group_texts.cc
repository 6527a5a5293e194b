#include "trainer_core/comm/group_texts.h"

#include <cstring>
#include <limits>
#include <vector>

#include "trainer_core/base/check.h"

namespace muster::trainer {
namespace {

// Returns a buffer of int32 for so many bytes; collectives transfer int32 unchanged.
std::vector<int32_t> numbers_for(size_t bytes) {
  return std::vector<int32_t>((bytes + sizeof(int32_t) - 1) / sizeof(int32_t));
}

std::vector<int32_t> numbers_of(std::string_view text) {
  std::vector<int32_t> words = numbers_for(text.size());
  if (!text.empty()) std::memcpy(words.data(), text.data(), text.size());
  return words;
}

std::string text_of(const std::vector<int32_t>& words, int32_t bytes) {
  return {reinterpret_cast<const char*>(words.data()), static_cast<size_t>(bytes)};
}

// Returns the size of a text. The longest text is the list of a rank's files, with some hundred
// bytes per file.
int32_t size_of(std::string_view text) {
  MUSTER_CHECK(text.size() <= std::numeric_limits<int32_t>::max()) << text.size() << " bytes";
  return static_cast<int32_t>(text.size());
}

}  // namespace

absl::StatusOr<std::string> broadcast_text(ProcessGroup& group, std::string_view text, int root,
                                           std::string_view name) {
  std::vector<int32_t> bytes = {size_of(text)};
  if (auto status = group.broadcast(bytes, root, name); !status.ok()) return status;
  std::vector<int32_t> words =
      group.rank() == root ? numbers_of(text) : numbers_for(static_cast<size_t>(bytes[0]));
  if (words.empty()) return std::string();
  if (auto status = group.broadcast(words, root, name); !status.ok()) return status;
  return text_of(words, bytes[0]);
}

absl::StatusOr<std::vector<std::string>> gather_texts(ProcessGroup& group, std::string_view mine,
                                                      std::string_view name) {
  std::vector<int32_t> sizes(static_cast<size_t>(group.size()));
  const std::vector<int32_t> own = {size_of(mine)};
  if (auto status = group.all_gather(own, sizes, name); !status.ok()) return status;
  if (group.rank() != 0) {
    if (mine.empty()) return std::vector<std::string>();
    if (auto status = group.send(numbers_of(mine), 0, name); !status.ok()) return status;
    return std::vector<std::string>();
  }
  std::vector<std::string> texts = {std::string(mine)};
  for (int from = 1; from < group.size(); ++from) {
    const int32_t bytes = sizes[static_cast<size_t>(from)];
    std::vector<int32_t> words = numbers_for(static_cast<size_t>(bytes));
    if (!words.empty()) {
      if (auto status = group.recv(words, from, name); !status.ok()) return status;
    }
    texts.push_back(text_of(words, bytes));
  }
  return texts;
}

}  // namespace muster::trainer
