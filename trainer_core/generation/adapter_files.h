// Opens the adapters that are used beside their base: the options --adapter of `muster serve` and
// `muster decode`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/adapters.h"
#include "trainer_core/data/text_start.h"

namespace muster::trainer {

// The maximum number of adapters: each is in memory, and a step has GEMMs for each of them.
constexpr size_t kServedAdaptersMax = 64;

// A folder of adapters, and the name by which requests choose it.
struct AdapterFolder {
  std::string name;
  std::string folder;
};

// Parses NAME=DIR. Returns InvalidArgument for other forms, for a name that was given twice or is
// `base_name`, and for too many adapters.
absl::StatusOr<std::vector<AdapterFolder>> parse_adapters(std::span<const std::string> words,
                                                          const std::string& base_name);

// Returns the names, as in "a, b".
std::string names_of(std::span<const AdapterFolder> folders);
// Returns "1 adapter" or, for example, "3 adapters".
std::string adapter_count(size_t count);

struct NamedAdapter {
  std::string name;
  Adapters adapters;  // without `values`, which read_served_adapter() reads
  // The training that saved them; nullopt: a folder of PEFT.
  std::optional<TrainConfig> training;
};

// Opens adapters of the model in `checkpoint`, a step's folder, whose config is `base`. Reads one
// after the other, and retains no values. Returns the errors of open_adapters() and check_base(),
// and InvalidArgument with the first setting of the model that changes results and that differs
// from the adapter's training. All errors have the option's words.
absl::StatusOr<std::vector<NamedAdapter>> open_served_adapters(
    std::span<const AdapterFolder> folders, const std::string& checkpoint, const ModelConfig& base);

// Reads the matrices of an opened adapter, in the base's layout of RoPE's pairs. Returns an error
// if its files have changed meanwhile.
absl::StatusOr<Adapters> read_served_adapter(const NamedAdapter& named, const ModelConfig& base);

// Returns how the texts of the base begin, whose training is `base`, and then those of each
// adapter: as in the training of the adapter, or as the base's for a folder of PEFT.
absl::StatusOr<std::vector<TextStart>> starts_of_models(const TrainConfig& base,
                                                        const Tokenizer& tokenizer,
                                                        std::span<const NamedAdapter> adapters);

}  // namespace muster::trainer
