// Finds parts of tensors that an unfinished download left as zeros. Programs that download several
// parts of a file at once reserve the whole file first, so the file has its full size and a valid
// header, and parts that did not arrive are zeros.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/stored_tensor.h"

namespace muster::trainer {

// Reads elements [first, first + out.size()) of one tensor.
using ReadElements = std::function<absl::Status(uint64_t first, std::span<float> out)>;

// Consecutive elements of a tensor that are zero: [begin, end).
struct ZeroRun {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// A missing part is found if it has at least this many elements. Shorter runs of zeros occur in
// models with pruned weights.
constexpr uint64_t kMissingElementsMin = 32'768;

// Returns the first run of at least kMissingElementsMin zeros that begins or ends inside a row of
// the tensor; nullopt if there is none. Such runs do not occur in models: unused rows, such as
// those of a padded vocabulary, whole tensors and unused columns are zero in some. A few zeros at
// the end or begin of a row beside unused rows are no part of a run. Reads few elements of a tensor
// without such runs. Returns the errors of `read`.
absl::StatusOr<std::optional<ZeroRun>> find_missing_part(const StoredTensor& tensor,
                                                         const ReadElements& read);

// Returns DataLoss, which names `tensor_name`, if find_missing_part() finds one.
absl::Status check_no_part_is_missing(const std::string& tensor_name, const StoredTensor& tensor,
                                      const ReadElements& read);

// Returns whether the tensor has at least two dimensions and kMissingElementsMin elements, which
// are all zero. Reads few elements of any other tensor.
absl::StatusOr<bool> is_zero_matrix(const StoredTensor& tensor, const ReadElements& read);

// Returns a note for users about matrices that contain only zeros; "" if `zero` is empty.
// `matrices`: the number of all matrices of the model.
std::string note_on_zero_matrices(const std::string& folder, const std::vector<std::string>& zero,
                                  size_t matrices);

}  // namespace muster::trainer
