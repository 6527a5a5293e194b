// Accounts for every tensor of a foreign model's files: used by the model, known to carry nothing
// that the model needs, or unused, which means that the config describes another model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

#include "trainer_core/base/model_config.h"

namespace muster::trainer {

// The treatment of tensors that the model does not use.
enum class UnusedTensorPolicy { kRefuse, kAllow };

struct UnusedTensor {
  std::string name;
  std::string shape;    // "BF16 [4096]"
  std::string setting;  // the config's line that would use it, "\"attention_bias\": true", or ""
  std::string why;      // a fault besides not being used, or ""
};

struct TensorAccount {
  size_t used = 0;
  std::map<std::string, size_t> ignored;  // tensors by reason
  std::vector<UnusedTensor> unused;       // in the order of their names

  size_t ignored_count() const;
};

// Returns the reason why a tensor of a Hugging Face file is known not to matter: a buffer that the
// config determines. "" for any other tensor.
std::string ignorable_reason(std::string_view name, const std::vector<int64_t>& shape,
                             const ModelConfig& model);

// Returns the setting of config.json with which the model would use the tensor; "" if the family
// has none. `names` are all names of the files.
std::string setting_for(std::string_view name, const ModelConfig& model,
                        const std::vector<std::string>& names);

// Returns OK if nothing is unused; with kAllow appends a note instead of the error. InvalidArgument
// names the first tensors, their number, and the settings of `config_file` that would use them.
absl::Status check_unused(const std::string& folder, std::string_view config_file,
                          const TensorAccount& account, UnusedTensorPolicy unused,
                          std::vector<std::string>& notes);

}  // namespace muster::trainer
