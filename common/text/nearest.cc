#include "common/text/nearest.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace muster {
namespace {

// Longer names are not config keys; the bound limits the quadratic table.
constexpr size_t kNameBytesMax = 256;

// Returns whether two characters are equal except for their case, so that a difference in case does
// not count as an edit.
bool is_same(char a, char b) {
  const auto lower = [](char c) {
    return 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  return lower(a) == lower(b);
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = last[j - 1] + (is_same(a[i - 1], b[j - 1]) ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, substitution});
      const bool transposed =
          i > 1 && j > 1 && is_same(a[i - 1], b[j - 2]) && is_same(a[i - 2], b[j - 1]);
      if (transposed) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates) {
  if (name.size() > kNameBytesMax) return {};
  std::string_view best;
  size_t best_distance = kNameBytesMax;
  for (std::string_view candidate : candidates) {
    const size_t limit = std::max<size_t>(2, std::max(name.size(), candidate.size()) / 3);
    const size_t distance = edit_distance(name, candidate);
    if (distance <= limit && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::vector<std::string_view> closest_names(std::string_view name,
                                            std::span<const std::string_view> candidates,
                                            size_t count) {
  std::vector<std::pair<size_t, std::string_view>> ranked;
  if (name.size() > kNameBytesMax) return {};
  for (const std::string_view candidate : candidates)
    ranked.emplace_back(edit_distance(name, candidate), candidate);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string_view> names;
  for (const auto& [distance, candidate] : ranked) {
    if (names.size() == count) break;
    names.push_back(candidate);
  }
  return names;
}

}  // namespace muster
