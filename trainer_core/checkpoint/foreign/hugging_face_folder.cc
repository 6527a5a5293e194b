#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <system_error>

#include <absl/memory/memory.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/strip.h>
#include <nlohmann/json.hpp>

#include "common/text/absl_view.h"
#include "trainer_core/base/file_kind.h"
#include "trainer_core/base/first_names.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/checkpoint/foreign/hugging_face.h"
#include "trainer_core/checkpoint/foreign/missing_tensor.h"
#include "trainer_core/checkpoint/foreign/zero_runs.h"
#include "trainer_core/checkpoint/parameter_source.h"
#include "trainer_core/checkpoint/safetensors.h"

namespace muster::trainer {
namespace {

// The maximum size of the index, which has one line per tensor; the index of a model with a hundred
// layers has a tenth of it.
constexpr size_t kIndexBytesMax = 16 << 20;
// The files that an error lists.
constexpr size_t kFilesShown = 4;
// Bounds the memory of a comparison.
constexpr uint64_t kComparedElements = 1 << 20;
constexpr absl::string_view kGpt2Prefix = "transformer.";

constexpr char kHead[] = "lm_head.weight";

const char* embeddings_of(const ModelConfig& model) {
  return model.name == "gpt2" ? "transformer.wte.weight" : "model.embed_tokens.weight";
}

// The files of the folder, and the file of each tensor.
class Files {
 public:
  explicit Files(std::string path) : path_(std::move(path)) {}

  // Like transformers, uses the index only if there is no single file, and reads every tensor of
  // the files that the index names.
  absl::Status open() {
    std::error_code error;
    const std::string index = path_ + "/" + kHuggingFaceIndexFile;
    if (std::filesystem::exists(path_ + "/" + kHuggingFaceSingleFile, error) ||
        !std::filesystem::exists(index, error))
      return add(kHuggingFaceSingleFile);
    const auto files = read_index(index);
    if (!files.ok()) return files.status();
    if (auto status = check_files(*files); !status.ok()) return status;
    for (const auto& [file, tensors] : *files) {
      if (auto status = add(file); !status.ok()) return status;
    }
    return use_index(*files);
  }

  absl::Status check(const HuggingFaceTensor& tensor) const {
    const Location* location = find(tensor.name);
    if (location == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(path_, ": there is no tensor ", tensor.name,
                                                     ", which config.json requires",
                                                     in_place_of(tensor.name, names())));
    }
    if (const std::string packed = packed_beside(
            tensor.name, [this](const std::string& name) { return copies_.contains(name); });
        !packed.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(path_, ": tensor ", tensor.name, " has ",
                                                     packed,
                                                     " beside it, as in a quantized model: take "
                                                     "the original one, or dequantize it with "
                                                     "transformers"));
    }
    if (location->stored->shape != tensor.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          path_, ": tensor ", tensor.name, " has the shape ", show_shape(location->stored->shape),
          ", and config.json requires ", show_shape(tensor.shape)));
    }
    if (location->stored->stored == StoredType::kOther) {
      return absl::InvalidArgumentError(absl::StrCat(
          path_, ": tensor ", tensor.name, " is stored as ", location->stored->dtype,
          "; this program reads F32, BF16 and F16: ", av(remedy_of_type(location->stored->dtype))));
    }
    return absl::OkStatus();
  }

  // Uses a head as the embeddings that it is tied to, if the files have only the head: programs
  // that drop the second of two names of a tensor keep the first one. Returns whether it did.
  bool take_head_as_embeddings(const std::string& embeddings) {
    const auto head = copies_.find(kHead);
    if (head == copies_.end() || copies_.contains(stored_name(embeddings))) return false;
    copies_[embeddings] = std::move(head->second);
    copies_.erase(head);
    return true;
  }

  // Requires check(). Returns DataLoss if a part of the tensor is missing (zero_runs.h).
  absl::Status read(const HuggingFaceTensor& tensor, std::span<float> theirs) const {
    const Location* location = find(tensor.name);
    auto status = check_no_part_is_missing(tensor.name, *location->stored, parts_of(*location));
    if (!status.ok())
      return absl::Status(status.code(),
                          absl::StrCat(path_, "/", location->name, ": ", status.message()));
    return location->file->read(*location->stored, theirs);
  }
  // Returns a note on matrices without any value; "" if there are none. Requires check() of each
  // tensor.
  std::string note_on_zeros(const std::vector<HuggingFaceTensor>& tensors) const {
    std::vector<std::string> zero;
    size_t matrices = 0;
    for (const HuggingFaceTensor& tensor : tensors) {
      const Location* location = find(tensor.name);
      if (location->stored->shape.size() >= 2) ++matrices;
      if (is_zero_matrix(*location->stored, parts_of(*location)).value_or(false))
        zero.push_back(tensor.name);
    }
    return note_on_zero_matrices(path_, zero, matrices);
  }
  StoredType stored(const HuggingFaceTensor& tensor) const {
    return find(tensor.name)->stored->stored;
  }

  // Accounts for every tensor of every file that was opened. Requires check() of each of `tensors`.
  TensorAccount account(const std::vector<HuggingFaceTensor>& tensors,
                        const ModelConfig& model) const {
    TensorAccount account;
    std::set<std::string> used;
    for (const HuggingFaceTensor& tensor : tensors) used.insert(stored_name(tensor.name));
    account.used = used.size();
    const std::vector<std::string> all = names();
    for (const auto& [name, copies] : copies_) {
      if (!used.contains(name)) add_extra(name, copies.front(), model, all, account);
      for (size_t i = 1; i < copies.size(); ++i) add_copy(name, copies[i], copies.front(), account);
    }
    return account;
  }

  // Returns the folder's other files of weights, which are not read.
  std::vector<std::string> other_files() const {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(path_, error)) {
      const std::string name = entry.path().filename().string();
      if (!absl::EndsWith(name, ".safetensors")) continue;
      const auto is_read = [&](const auto& copies) {
        return std::any_of(copies.second.begin(), copies.second.end(),
                           [&](const Location& copy) { return copy.name == name; });
      };
      if (std::none_of(copies_.begin(), copies_.end(), is_read)) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  struct Location {
    const SafetensorsFile* file;
    const StoredTensor* stored;
    std::string name;  // name of the file
  };

  // Returns whether a file name from the index is a plain name, so that it cannot refer to files
  // outside the folder.
  static bool is_plain(const std::string& name) {
    return !name.empty() && name.front() != '.' && !absl::StrContains(name, '/');
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, copies] : copies_) names.push_back(name);
    return names;
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

  // Names all missing files of an index at once: each may take an hour to download.
  absl::Status check_files(const Index& index) const {
    std::vector<std::string> missing;
    std::string problem;
    for (const auto& [file, tensors] : index) {
      const std::string path = absl::StrCat(path_, "/", file);
      std::error_code error;
      if (std::filesystem::exists(path, error)) continue;
      missing.push_back(file);
      if (problem.empty()) problem = std::string(open_failure(ENOENT, path).message());
    }
    if (missing.empty()) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat(
        path_, ": ", missing.size(), " of the ", index.size(), " files of ", kHuggingFaceIndexFile,
        missing.size() == 1 ? " is" : " are", " missing: ", first_names(missing, kFilesShown), " (",
        problem, "); download the folder again"));
  }

  // A tensor that several files have is the one in the file that the index names.
  absl::Status use_index(const Index& index) {
    for (const auto& [file, tensors] : index) {
      for (const std::string& tensor : tensors) {
        auto& copies = copies_[tensor];
        const auto found = std::find_if(copies.begin(), copies.end(),
                                        [&](const Location& copy) { return copy.name == file; });
        if (found == copies.end()) {
          return absl::InvalidArgumentError(
              absl::StrCat(path_, "/", kHuggingFaceIndexFile, ": ", tensor, " is listed in ", file,
                           ", which does not have it; download both again"));
        }
        std::iter_swap(copies.begin(), found);
      }
    }
    return absl::OkStatus();
  }

  // Adds all tensors of a file.
  absl::Status add(const std::string& name) {
    auto file = SafetensorsFile::open(path_ + "/" + name);
    if (!file.ok()) return file.status();
    for (const auto& [tensor, stored] : (*file)->tensors())
      copies_[tensor].push_back({file->get(), &stored, name});
    files_.push_back(*std::move(file));
    return absl::OkStatus();
  }

  const Location* find(const std::string& name) const {
    const auto found = copies_.find(stored_name(name));
    return found == copies_.end() ? nullptr : &found->second.front();
  }

  // Returns the name in the files: GPT-2's first published ones have no "transformer." before it.
  std::string stored_name(const std::string& name) const {
    if (copies_.contains(name)) return name;
    return std::string(absl::StripPrefix(name, kGpt2Prefix));
  }

  // Returns whether both have the same shape and values; NaNs are equal to themselves.
  static bool are_identical(const Location& a, const Location& b) {
    if (a.stored->shape != b.stored->shape || a.stored->stored == StoredType::kOther ||
        b.stored->stored == StoredType::kOther)
      return false;
    std::vector<float> left;
    std::vector<float> right;
    for (uint64_t first = 0; first < a.stored->elements; first += left.size()) {
      const uint64_t count = std::min<uint64_t>(kComparedElements, a.stored->elements - first);
      left.resize(count);
      right.resize(count);
      if (!parts_of(a)(first, left).ok() || !parts_of(b)(first, right).ok()) return false;
      if (std::memcmp(left.data(), right.data(), count * sizeof(float)) != 0) return false;
    }
    return true;
  }
  // The location must outlive the result.
  static ReadElements parts_of(const Location& location) {
    return [&location](uint64_t first, std::span<float> out) {
      StoredTensor part = *location.stored;
      part.offset += first * stored_bytes(part.stored);
      part.elements = out.size();
      return location.file->read(part, out);
    };
  }

  // Adds a tensor that the model does not need to the account.
  void add_extra(const std::string& name, const Location& location, const ModelConfig& model,
                 const std::vector<std::string>& names, TensorAccount& account) const {
    if (const std::string reason = ignorable_reason(name, location.stored->shape, model);
        !reason.empty()) {
      ++account.ignored[reason];
      return;
    }
    UnusedTensor tensor{
        name, absl::StrCat(location.stored->dtype, " ", show_shape(location.stored->shape)),
        setting_for(name, model, names), ""};
    const Location* embeddings =
        name == kHead && model.logits_via_embedding ? find(embeddings_of(model)) : nullptr;
    if (embeddings != nullptr) {
      if (are_identical(location, *embeddings)) {
        ++account.ignored["lm_head.weight: identical to the embeddings, to which it is tied"];
        return;
      }
      tensor.why = "it differs from the embeddings, to which config.json ties it";
    }
    const auto twin = copies_.find(absl::StrCat(kGpt2Prefix, name));
    if (model.name == "gpt2" && twin != copies_.end())
      return add_copy(name, location, twin->second.front(), account);
    account.unused.push_back(std::move(tensor));
  }

  // Adds a second copy of a tensor.
  void add_copy(const std::string& name, const Location& location, const Location& original,
                TensorAccount& account) const {
    if (are_identical(location, original)) {
      ++account.ignored["identical copies of other tensors"];
      return;
    }
    account.unused.push_back(
        {name, absl::StrCat(location.stored->dtype, " ", show_shape(location.stored->shape)), "",
         absl::StrCat("in ", location.name, ", it differs from that in ", original.name)});
  }

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  // By name: the one that counts, and then those of other files.
  std::map<std::string, std::vector<Location>> copies_;
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

absl::StatusOr<std::unique_ptr<ParameterSource>> open_hugging_face(const std::string& folder,
                                                                   UnusedTensorPolicy unused) {
  const auto config = read_hugging_face_config(folder);
  if (!config.ok()) return config.status();
  Files files(folder);
  if (auto status = files.open(); !status.ok()) return status;
  const bool head_is_taken = config->model.logits_via_embedding &&
                             files.take_head_as_embeddings(embeddings_of(config->model));
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
  description.notes = config->notes;
  if (head_is_taken) {
    description.notes.push_back(
        absl::StrCat(folder, ": ", kHead,
                     " is used as the embeddings, to which config.json ties it: there is no ",
                     embeddings_of(config->model)));
  }
  description.tensors = files.account(tensors, config->model);
  if (auto status = check_unused(folder, kHuggingFaceConfigFile, description.tensors, unused,
                                 description.notes);
      !status.ok())
    return status;
  if (std::string note = files.note_on_zeros(tensors); !note.empty())
    description.notes.push_back(std::move(note));
  if (const std::vector<std::string> others = files.other_files(); !others.empty()) {
    description.notes.push_back(absl::StrCat(
        folder, ": other files of weights are not read: ", absl::StrJoin(others, ", ")));
  }
  return absl::make_unique<HuggingFaceSource>(std::move(description), std::move(files));
}

}  // namespace muster::trainer
