// Reads the pickle in a file of torch.save, which must be a plain dictionary of tensors.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// A tensor: the arguments of torch._utils._rebuild_tensor_v2.
struct PickledTensor {
  std::string storage_type;       // "BFloat16Storage"
  std::string storage;            // key of the storage: its data is the archive's entry data/<key>
  uint64_t storage_elements = 0;  // size of the storage
  uint64_t offset = 0;            // position of the first element in the storage, in elements
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // in elements
};

// Returns the tensors of the dictionary by name, without its other entries. Runs no code of the
// pickle. Returns the errors of run_pickle() (pickle_machine.h), and InvalidArgument if the pickle
// is not a dictionary or a tensor is malformed.
absl::StatusOr<std::map<std::string, PickledTensor>> read_tensor_pickle(
    std::span<const char> pickle);

}  // namespace muster::trainer
