#include "trainer_core/checkpoint/foreign/zero_runs.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/first_names.h"

namespace muster::trainer {
namespace {

// The names that a note lists.
constexpr size_t kNamesShown = 4;

// Returns the first element from `from` on that is not zero; the number of elements if there is
// none.
absl::StatusOr<uint64_t> end_of_zeros(const StoredTensor& tensor, uint64_t from,
                                      const ReadElements& read) {
  std::vector<float> block;
  for (uint64_t begin = from; begin < tensor.elements; begin += block.size()) {
    block.resize(std::min(kMissingElementsMin, tensor.elements - begin));
    if (auto status = read(begin, block); !status.ok()) return status;
    const auto other = std::ranges::find_if(block, [](float value) { return value != 0; });
    if (other != block.end()) return begin + static_cast<uint64_t>(other - block.begin());
  }
  return tensor.elements;
}

// Returns the first element of the zeros that end with element `last`, but at least `first`.
absl::StatusOr<uint64_t> begin_of_zeros(uint64_t first, uint64_t last, const ReadElements& read) {
  std::vector<float> block(last + 1 - first);
  if (auto status = read(first, block); !status.ok()) return status;
  const auto other =
      std::find_if(block.rbegin(), block.rend(), [](float value) { return value != 0; });
  return first + static_cast<uint64_t>(block.rend() - other);
}

// Returns whether the run begins or ends inside a row. `at`: its first element, or the one after
// its last. Some values of a row are zero by chance, or are unused columns, which are zero in the
// neighbouring row, too.
absl::StatusOr<bool> tears_a_row(uint64_t at, bool is_begin, const StoredTensor& tensor,
                                 const ReadElements& read) {
  constexpr uint64_t kByChance = 64;
  const auto row = static_cast<uint64_t>(tensor.shape.back());
  const uint64_t inside = at % row;
  const uint64_t shorter = std::min(inside, row - inside);
  if (inside == 0 || shorter < std::min(kByChance, row / 4)) return false;
  if (is_begin ? at < row : at + row > tensor.elements) return true;  // there is no other row
  std::vector<float> columns(is_begin ? row - inside : inside);
  const uint64_t first = is_begin ? at - row : at - inside + row;
  if (first + columns.size() > tensor.elements) return true;
  if (auto status = read(first, columns); !status.ok()) return status;
  return std::ranges::any_of(columns, [](float value) { return value != 0; });
}

}  // namespace

absl::StatusOr<std::optional<ZeroRun>> find_missing_part(const StoredTensor& tensor,
                                                         const ReadElements& read) {
  if (tensor.shape.size() < 2 || tensor.elements == 0) return std::nullopt;
  uint64_t begin_min = 0;  // the run begins here or later
  // Each run of this length contains one of these elements.
  for (uint64_t probe = kMissingElementsMin - 1; probe < tensor.elements;) {
    float value = 0;
    if (auto status = read(probe, {&value, 1}); !status.ok()) return status;
    if (value != 0) {
      begin_min = probe + 1;
      probe += kMissingElementsMin;
      continue;
    }
    const auto begin = begin_of_zeros(begin_min, probe, read);
    if (!begin.ok()) return begin.status();
    const auto end = end_of_zeros(tensor, probe, read);
    if (!end.ok()) return end.status();
    if (*end - *begin >= kMissingElementsMin) {
      const auto begins_inside = tears_a_row(*begin, true, tensor, read);
      if (!begins_inside.ok()) return begins_inside.status();
      const auto ends_inside = tears_a_row(*end, false, tensor, read);
      if (!ends_inside.ok()) return ends_inside.status();
      if (*begins_inside || *ends_inside) return ZeroRun{*begin, *end};
    }
    begin_min = *end;
    probe = *end + kMissingElementsMin - 1;
  }
  return std::nullopt;
}

absl::Status check_no_part_is_missing(const std::string& tensor_name, const StoredTensor& tensor,
                                      const ReadElements& read) {
  const auto run = find_missing_part(tensor, read);
  if (!run.ok()) return run.status();
  if (!run->has_value()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("tensor ", tensor_name, " has only zeros from element ", (*run)->begin, " to ",
                   (*run)->end, ", which are no whole rows of ", show_shape(tensor.shape),
                   ": the file's download is unfinished; download it again"));
}

absl::StatusOr<bool> is_zero_matrix(const StoredTensor& tensor, const ReadElements& read) {
  if (tensor.shape.size() < 2 || tensor.elements < kMissingElementsMin) return false;
  constexpr uint64_t kProbes = 8;
  for (uint64_t i = 0; i < kProbes; ++i) {
    float value = 0;
    const uint64_t probe = i * (tensor.elements / kProbes);
    if (auto status = read(probe, {&value, 1}); !status.ok()) return status;
    if (value != 0) return false;
  }
  const auto end = end_of_zeros(tensor, 0, read);
  if (!end.ok()) return end.status();
  return *end == tensor.elements;
}

std::string note_on_zero_matrices(const std::string& folder, const std::vector<std::string>& zero,
                                  size_t matrices) {
  if (zero.empty()) return "";
  return absl::StrCat(folder, ": ", zero.size(), " of ", matrices,
                      " matrices contain only zeros: ", first_names(zero, kNamesShown),
                      "; unless the model is published like this, the download is unfinished: "
                      "compare the files' checksums with the publisher's");
}

}  // namespace muster::trainer
