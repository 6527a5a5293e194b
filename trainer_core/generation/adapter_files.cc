#include "trainer_core/generation/adapter_files.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "trainer_core/checkpoint/find_checkpoint.h"
#include "trainer_core/checkpoint/foreign/peft_folder.h"
#include "trainer_core/checkpoint/foreign/rotary_source.h"

namespace muster::trainer {
namespace {

// Names are parts of addresses (/v1/models/NAME).
constexpr size_t kNameBytesMax = 64;
bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= kNameBytesMax && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

absl::StatusOr<NamedAdapter> open_one(const AdapterFolder& from, const std::string& checkpoint,
                                      const ModelConfig& base) {
  auto opened = open_with_base(from.folder, checkpoint);
  if (!opened.ok()) return opened.status();
  NamedAdapter named{
      .name = from.name, .adapters = std::move(opened->adapters), .training = std::nullopt};
  reorder_rotary_rows(named.adapters, base.position_type);
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
    return absl::InvalidArgumentError(absl::StrCat(
        "there are ", words.size(), " adapters; at most ", kServedAdaptersMax, " are supported"));
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

absl::StatusOr<std::vector<NamedAdapter>> open_served_adapters(
    std::span<const AdapterFolder> folders, const std::string& checkpoint,
    const ModelConfig& base) {
  std::vector<NamedAdapter> adapters;
  for (const AdapterFolder& from : folders) {
    auto one = open_one(from, checkpoint, base);
    if (!one.ok()) {
      return absl::Status(
          one.status().code(),
          absl::StrCat("--adapter ", from.name, "=", from.folder, ": ", one.status().message()));
    }
    adapters.push_back(*std::move(one));
  }
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
