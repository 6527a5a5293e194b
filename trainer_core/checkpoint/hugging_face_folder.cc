#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <system_error>

#include <absl/memory/memory.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>
#include <nlohmann/json.hpp>

#include "common/absl_view.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/checkpoint/hugging_face.h"
#include "trainer_core/checkpoint/parameter_source.h"
#include "trainer_core/checkpoint/safetensors.h"

namespace muster::trainer {
namespace {

// The maximum size of the index, which has one line per tensor; the index of a model with a hundred
// layers has a tenth of it.
constexpr size_t kIndexBytesMax = 16 << 20;
constexpr absl::string_view kGpt2Prefix = "transformer.";

// The files of the folder, and the file of each tensor.
class Files {
 public:
  explicit Files(std::string path) : path_(std::move(path)) {}

  // Like transformers, uses the index only if there is no single file.
  absl::Status open() {
    std::error_code error;
    const std::string index = path_ + "/" + kHuggingFaceIndexFile;
    if (std::filesystem::exists(path_ + "/" + kHuggingFaceSingleFile, error) ||
        !std::filesystem::exists(index, error))
      return add(kHuggingFaceSingleFile, nullptr);
    const auto files = read_index(index);
    if (!files.ok()) return files.status();
    for (const auto& [file, tensors] : *files) {
      if (auto status = add(file, &tensors); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status check(const HuggingFaceTensor& tensor) const {
    const Location* location = find(tensor.name);
    if (location == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(path_, ": there is no tensor ", tensor.name,
                                                     ", which config.json requires"));
    }
    if (location->stored->shape != tensor.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          path_, ": tensor ", tensor.name, " has the shape ", show_shape(location->stored->shape),
          ", and config.json requires ", show_shape(tensor.shape)));
    }
    if (location->stored->stored == StoredType::kOther) {
      return absl::InvalidArgumentError(absl::StrCat(path_, ": tensor ", tensor.name,
                                                     " is stored as ", location->stored->dtype,
                                                     "; this program reads F32, BF16 and F16"));
    }
    return absl::OkStatus();
  }

  // Requires check().
  absl::Status read(const HuggingFaceTensor& tensor, std::span<float> theirs) const {
    const Location* location = find(tensor.name);
    return location->file->read(*location->stored, theirs);
  }
  StoredType stored(const HuggingFaceTensor& tensor) const {
    return find(tensor.name)->stored->stored;
  }

 private:
  struct Location {
    const SafetensorsFile* file;
    const StoredTensor* stored;
  };

  // Returns whether a file name from the index is a plain name, so that it cannot refer to files
  // outside the folder.
  static bool is_plain(const std::string& name) {
    return !name.empty() && name.front() != '.' && !absl::StrContains(name, '/');
  }

  // The tensors of each file of the index.
  using Index = std::map<std::string, std::set<std::string>>;
  static absl::StatusOr<Index> read_index(const std::string& path) {
    const auto file = read_json_file(path, kIndexBytesMax);
    if (!file.ok()) return file.status();
    if (!file->is_object() || !file->contains("weight_map") || !(*file)["weight_map"].is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " has no weight_map of tensor names to file names"));
    }
    Index index;
    for (const auto& item : (*file)["weight_map"].items()) {
      if (!item.value().is_string() || !is_plain(item.value().get<std::string>())) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": weight_map has ", show_json(item.value()), " for tensor ",
                         show_json(item.key()), ", which is no name of a file in this folder"));
      }
      index[item.value().get<std::string>()].insert(item.key());
    }
    return index;
  }

  // Adds these tensors of a file; null: all.
  absl::Status add(const std::string& name, const std::set<std::string>* tensors) {
    auto file = SafetensorsFile::open(path_ + "/" + name);
    if (!file.ok()) return file.status();
    for (const auto& [tensor, stored] : (*file)->tensors()) {
      if (tensors == nullptr || tensors->contains(tensor))
        locations_[tensor] = {file->get(), &stored};
    }
    files_.push_back(*std::move(file));
    return absl::OkStatus();
  }

  // The first published files of GPT-2 have names without "transformer.".
  const Location* find(const std::string& name) const {
    auto found = locations_.find(name);
    if (found == locations_.end())
      found = locations_.find(std::string(absl::StripPrefix(name, kGpt2Prefix)));
    return found == locations_.end() ? nullptr : &found->second;
  }

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Location> locations_;
};

class HuggingFaceSource : public ParameterSource {
 public:
  HuggingFaceSource(ParameterDescription description, Files files)
      : ParameterSource(std::move(description)), files_(std::move(files)) {}

  absl::Status read(const HuggingFaceTensor& tensor, std::span<float> out) const override {
    if (!tensor.transposed) return files_.read(tensor, out);
    std::vector<float> theirs(out.size());
    if (auto status = files_.read(tensor, theirs); !status.ok()) return status;
    to_our_layout(tensor, theirs, out);
    return absl::OkStatus();
  }

 private:
  Files files_;
};

// Returns the type of the largest tensor. Norms may be float32 although matrices are bfloat16.
StoredType main_type(const Files& files, const std::vector<HuggingFaceTensor>& tensors) {
  const auto largest = std::max_element(tensors.begin(), tensors.end(),
                                        [](const HuggingFaceTensor& a, const HuggingFaceTensor& b) {
                                          return a.elements() < b.elements();
                                        });
  return files.stored(*largest);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterSource>> open_hugging_face(const std::string& folder) {
  const auto config = read_hugging_face_config(folder);
  if (!config.ok()) return config.status();
  Files files(folder);
  if (auto status = files.open(); !status.ok()) return status;
  const std::vector<HuggingFaceTensor> tensors =
      hugging_face_tensors(config->model, model_params(config->model));
  for (const HuggingFaceTensor& tensor : tensors) {
    if (auto status = files.check(tensor); !status.ok()) return status;
  }
  ParameterDescription description;
  description.format = ParameterFormat::kHuggingFace;
  description.folder = folder;
  description.model = config->model;
  description.stored = main_type(files, tensors);
  description.max_position = config->max_position;
  description.token_ids = config->token_ids;
  return absl::make_unique<HuggingFaceSource>(std::move(description), std::move(files));
}

}  // namespace muster::trainer
