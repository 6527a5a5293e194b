#include "trainer_core/generation/adapter_files.h"

#include <algorithm>
#include <map>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "trainer_core/checkpoint/find_checkpoint.h"
#include "trainer_core/checkpoint/foreign/peft_folder.h"
#include "trainer_core/checkpoint/foreign/rotary_source.h"
#include "trainer_core/checkpoint/parameter_source.h"

namespace muster::trainer {
namespace {

// Names are parts of addresses (/v1/models/NAME).
constexpr size_t kNameBytesMax = 64;
bool is_name(const std::string& name) {
  // Clients remove the parts "." and ".." from addresses.
  if (name.empty() || name.size() > kNameBytesMax || name == "." || name == "..") return false;
  return std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

// The hashes of the base, one for each layout of RoPE's pairs. They take time to compute, so that
// all adapters share them.
class BaseHashes {
 public:
  explicit BaseHashes(const std::string& checkpoint) : checkpoint_(checkpoint) {}

  absl::StatusOr<std::string> of(PositionType position_type) {
    if (const auto known = hashes_.find(position_type); known != hashes_.end())
      return known->second;
    auto base = ParameterSource::open(checkpoint_, Verify::kSizes);
    if (!base.ok()) return base.status();
    auto hash = hash_of_base(*with_rotary_layout(*std::move(base), position_type));
    if (hash.ok()) hashes_[position_type] = *hash;
    return hash;
  }

 private:
  const std::string checkpoint_;
  std::map<PositionType, std::string> hashes_;
};

absl::StatusOr<NamedAdapter> open_one(const AdapterFolder& from, const std::string& checkpoint,
                                      const ModelConfig& base, BaseHashes& hashes) {
  auto adapters = open_adapters(from.folder, base);
  if (!adapters.ok()) return adapters.status();
  absl::StatusOr<std::string> hash = "";
  if (!adapters->base_hash.empty()) hash = hashes.of(adapters->model.position_type);
  if (!hash.ok()) return hash.status();
  if (auto status = check_base(*adapters, base, *hash, checkpoint); !status.ok()) return status;
  if (adapters->model.lora.weight_type != WeightType::kPlain) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it was trained on weights in ", show_weight_type(adapters->model.lora.weight_type),
        " (lora_weight_qtype), and the base here has others; use it alone, with --run ",
        from.folder));
  }
  reorder_rotary_rows(*adapters, base.position_type);
  if (const auto difference = first_difference(adapters->model, base)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its training has ", difference->key, "=", difference->a, ", and the base ", difference->b,
        ", which would change its results; use it alone, with --run ", from.folder));
  }
  adapters->values = {};
  NamedAdapter named{.name = from.name, .adapters = *std::move(adapters), .training = std::nullopt};
  if (is_peft_folder(from.folder)) return named;
  auto training = training_of_checkpoint(named.adapters.folder);
  if (!training.ok()) return training.status();
  named.training = *std::move(training);
  return named;
}

}  // namespace

absl::StatusOr<std::vector<AdapterFolder>> parse_adapters(std::span<const std::string> words,
                                                          const std::string& base_name) {
  if (words.size() > kServedAdaptersMax) {
    return absl::InvalidArgumentError(absl::StrCat("--adapter is given ", words.size(),
                                                   " times; at most ", kServedAdaptersMax,
                                                   " adapters are supported"));
  }
  std::vector<AdapterFolder> folders;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    AdapterFolder one{word.substr(0, equals), ""};
    if (equals != std::string::npos) one.folder = word.substr(equals + 1);
    if (!is_name(one.name) || one.folder.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--adapter ", word, ": it must be NAME=DIR, with a name of at most ", kNameBytesMax,
          " letters, digits, '-', '_' and '.', and the folder of an adapter"));
    }
    if (one.name == base_name) {
      return absl::InvalidArgumentError(
          absl::StrCat("--adapter ", word, ": ", one.name, " is the name of the base"));
    }
    if (std::ranges::count(folders, one.name, &AdapterFolder::name) > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--adapter ", word, ": there are two adapters with the name ", one.name));
    }
    folders.push_back(std::move(one));
  }
  return folders;
}

std::string names_of(std::span<const AdapterFolder> folders) {
  return absl::StrJoin(folders, ", ",
                       [](std::string* out, const AdapterFolder& one) { out->append(one.name); });
}

std::string adapter_count(size_t count) {
  return absl::StrCat(count, count == 1 ? " adapter" : " adapters");
}

absl::StatusOr<std::vector<NamedAdapter>> open_served_adapters(
    std::span<const AdapterFolder> folders, const std::string& checkpoint,
    const ModelConfig& base) {
  const ModelConfig model = base_of(base);
  BaseHashes hashes(checkpoint);
  std::vector<NamedAdapter> adapters;
  for (const AdapterFolder& from : folders) {
    auto one = open_one(from, checkpoint, model, hashes);
    if (!one.ok()) {
      return absl::Status(
          one.status().code(),
          absl::StrCat("--adapter ", from.name, "=", from.folder, ": ", one.status().message()));
    }
    adapters.push_back(*std::move(one));
  }
  return adapters;
}

absl::StatusOr<Adapters> read_served_adapter(const NamedAdapter& named, const ModelConfig& base) {
  auto adapters = open_same_adapters(named.adapters.folder, named.adapters.checksum, base_of(base));
  if (!adapters.ok()) {
    return absl::Status(adapters.status().code(),
                        absl::StrCat("--adapter ", named.name, ": ", adapters.status().message()));
  }
  reorder_rotary_rows(*adapters, base.position_type);
  return adapters;
}

absl::StatusOr<std::vector<TextStart>> starts_of_models(const TrainConfig& base,
                                                        const Tokenizer& tokenizer,
                                                        std::span<const NamedAdapter> adapters) {
  auto start = expected_text_start(base, tokenizer);
  if (!start.ok()) return start.status();
  std::vector<TextStart> starts = {*start};
  for (const NamedAdapter& named : adapters) {
    if (named.training) start = expected_text_start(*named.training, tokenizer);
    if (!start.ok())
      return absl::Status(start.status().code(),
                          absl::StrCat("--adapter ", named.name, ": ", start.status().message()));
    starts.push_back(named.training ? *start : starts.front());
  }
  return starts;
}

}  // namespace muster::trainer
