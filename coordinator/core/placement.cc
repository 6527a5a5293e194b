#include "coordinator/core/placement.h"

#include <absl/strings/ascii.h>

namespace muster::coordinator {
namespace {

// The run of digits that `text` begins with, without its leading zeros.
std::string_view digits_at_front(std::string_view text, size_t* length) {
  size_t end = 0;
  while (end < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[end]))) ++end;
  *length = end;
  size_t first = 0;
  while (first + 1 < end && text[first] == '0') ++first;
  return text.substr(0, end).substr(first < end ? first : end);
}

}  // namespace

bool natural_less(std::string_view a, std::string_view b) {
  std::string_view x = a;
  std::string_view y = b;
  while (!x.empty() && !y.empty()) {
    size_t x_length = 0;
    size_t y_length = 0;
    const std::string_view x_digits = digits_at_front(x, &x_length);
    const std::string_view y_digits = digits_at_front(y, &y_length);
    if (x_length > 0 && y_length > 0) {
      if (x_digits.size() != y_digits.size()) return x_digits.size() < y_digits.size();
      if (x_digits != y_digits) return x_digits < y_digits;
      x.remove_prefix(x_length);
      y.remove_prefix(y_length);
      continue;
    }
    if (x.front() != y.front()) return x.front() < y.front();
    x.remove_prefix(1);
    y.remove_prefix(1);
  }
  if (x.empty() != y.empty()) return x.empty();
  return a < b;
}

Placement place(const JobSpec& spec, const std::vector<Host>& hosts) {
  Placement placement;
  std::vector<const Host*> chosen;
  int64_t large_enough = 0;
  for (const Host& host : hosts) {
    if (host.slots >= spec.ranks_per_node) ++large_enough;
    if (host.slots_free >= spec.ranks_per_node && std::ssize(chosen) < spec.nodes) {
      chosen.push_back(&host);
    }
  }
  if (std::ssize(chosen) < spec.nodes) {
    placement.fit = large_enough >= spec.nodes ? Fit::kLater : Fit::kNever;
    return placement;
  }
  placement.fit = Fit::kNow;
  for (const Host* host : chosen) {
    for (int32_t local = 0; local < spec.ranks_per_node; ++local) {
      const Rank rank(static_cast<int32_t>(placement.ranks.size()));
      placement.ranks.push_back({rank, host->name, local, host->incarnation});
    }
  }
  return placement;
}

}  // namespace muster::coordinator
