#include "trainer_core/checkpoint/foreign/meta_folder.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <system_error>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/strip.h>

#include "trainer_core/base/json_file.h"
#include "trainer_core/checkpoint/foreign/meta_params.h"
#include "trainer_core/checkpoint/foreign/rotary_rows.h"
#include "trainer_core/checkpoint/foreign/torch_file.h"
#include "trainer_core/checkpoint/foreign/zero_runs.h"

namespace muster::trainer {
namespace {

constexpr size_t kParamsBytesMax = 1 << 20;
// The maximum number of files: the last possible name is consolidated.99.pth. Llama 3.1 405B has 16
// files.
constexpr int kFilesMax = 100;

// How a tensor is split over files. kEither: by rows or columns; the embedding is split by rows in
// Llama 3 and by columns before.
enum class Cut : uint8_t { kNone, kRows, kColumns, kEither };

struct MetaName {
  const char* ours;    // after "model.layers.N."
  const char* theirs;  // after "layers.N."
  Cut cut;
};
constexpr MetaName kLayer[] = {{"input_layernorm.weight", "attention_norm.weight", Cut::kNone},
                               {"self_attn.q_proj.weight", "attention.wq.weight", Cut::kRows},
                               {"self_attn.k_proj.weight", "attention.wk.weight", Cut::kRows},
                               {"self_attn.v_proj.weight", "attention.wv.weight", Cut::kRows},
                               {"self_attn.o_proj.weight", "attention.wo.weight", Cut::kColumns},
                               {"post_attention_layernorm.weight", "ffn_norm.weight", Cut::kNone},
                               {"mlp.gate_proj.weight", "feed_forward.w1.weight", Cut::kRows},
                               {"mlp.up_proj.weight", "feed_forward.w3.weight", Cut::kRows},
                               {"mlp.down_proj.weight", "feed_forward.w2.weight", Cut::kColumns}};
constexpr MetaName kRest[] = {{"model.embed_tokens.weight", "tok_embeddings.weight", Cut::kEither},
                              {"model.norm.weight", "norm.weight", Cut::kNone},
                              {"lm_head.weight", "output.weight", Cut::kRows}};

struct Found {
  std::string name;
  Cut cut;
};

// Returns Meta's name of a tensor. Every tensor of a Llama has one.
Found meta_name(const std::string& ours) {
  absl::string_view rest = ours;
  if (!absl::ConsumePrefix(&rest, "model.layers.")) {
    const auto* const row = std::find_if(std::begin(kRest), std::end(kRest),
                                         [&](const MetaName& name) { return ours == name.ours; });
    return {row->theirs, row->cut};
  }
  const size_t dot = rest.find('.');
  const absl::string_view name = rest.substr(dot + 1);
  const auto* const row = std::find_if(std::begin(kLayer), std::end(kLayer),
                                       [&](const MetaName& known) { return name == known.ours; });
  return {absl::StrCat("layers.", rest.substr(0, dot), ".", row->theirs), row->cut};
}

using TorchFiles = std::vector<std::unique_ptr<TorchFile>>;

absl::StatusOr<TorchFiles> open_files(const std::string& folder) {
  TorchFiles files;
  std::error_code error;
  for (int i = 0; i < kFilesMax; ++i) {
    const std::string path = absl::StrCat(folder, "/", absl::StrFormat("consolidated.%02d.pth", i));
    if (i > 0 && !std::filesystem::exists(path, error)) break;
    auto file = TorchFile::open(path);
    if (!file.ok()) return file.status();
    files.push_back(*std::move(file));
  }
  // A file behind the first gap belongs to the model, too.
  for (int i = static_cast<int>(files.size()); i < kFilesMax; ++i) {
    const std::string name = absl::StrFormat("consolidated.%02d.pth", i);
    if (!std::filesystem::exists(absl::StrCat(folder, "/", name), error)) continue;
    return absl::NotFoundError(
        absl::StrCat(folder, ": ", absl::StrFormat("consolidated.%02d.pth", files.size()),
                     " is missing, and ", name, " is there; download the folder again"));
  }
  return files;
}

// The parts of a tensor in all files.
struct Shards {
  std::vector<const StoredTensor*> parts;
  bool by_columns = false;
};

class MetaSource : public ParameterSource {
 public:
  MetaSource(ParameterDescription description, TorchFiles files)
      : ParameterSource(std::move(description)), files_(std::move(files)) {}

  absl::Status read(const HuggingFaceTensor& tensor, std::span<float> out) const override {
    const auto shards = find(tensor);
    if (!shards.ok()) return shards.status();
    absl::Status status = check_no_part_is_missing_in(tensor.name, *shards);
    if (!status.ok()) return status;
    if (shards->by_columns) {
      status = read_columns(*shards, out);
    } else {
      size_t done = 0;
      for (size_t i = 0; i < shards->parts.size() && status.ok(); ++i) {
        const size_t count = shards->parts[i]->elements;
        status = files_[i]->read(*shards->parts[i], 0, out.subspan(done, count));
        done += count;
      }
    }
    if (!status.ok()) return status;
    if (absl::EndsWith(tensor.name, ".q_proj.weight") ||
        absl::EndsWith(tensor.name, ".k_proj.weight"))
      split_rotary_pairs(out, description().model.head_dim, tensor.shape[1]);
    return absl::OkStatus();
  }

  // Accounts for every tensor of every file in the description. Requires check().
  absl::Status count_tensors(UnusedTensorPolicy unused) {
    set_account(account());
    return check_unused(description().folder, kMetaParamsFile, description().tensors, unused,
                        mutable_notes());
  }

  // Notes matrices without any value in a file. Requires check().
  void note_zeros() {
    std::vector<std::string> zero;
    size_t matrices = 0;
    for (const HuggingFaceTensor& tensor : tensors()) {
      const auto shards = find(tensor);
      if (tensor.shape.size() < 2 || !shards.ok()) continue;
      ++matrices;
      for (size_t i = 0; i < shards->parts.size(); ++i) {
        if (!is_zero_matrix(*shards->parts[i], parts_of(*shards, i)).value_or(false)) continue;
        zero.push_back(meta_name(tensor.name).name);
        break;
      }
    }
    if (std::string note = note_on_zero_matrices(description().folder, zero, matrices);
        !note.empty())
      mutable_notes().push_back(std::move(note));
  }

  // Returns InvalidArgument with a tensor that is missing or is split in another way.
  absl::Status check() const {
    for (const HuggingFaceTensor& tensor : tensors()) {
      if (auto shards = find(tensor); !shards.ok()) return shards.status();
    }
    return absl::OkStatus();
  }

 private:
  TensorAccount account() const {
    TensorAccount account;
    std::map<std::string, Cut> used;
    for (const HuggingFaceTensor& tensor : tensors()) {
      const Found found = meta_name(tensor.name);
      used.emplace(found.name, found.cut);
    }
    account.used = used.size();
    int64_t layers = 0;
    for (const auto& [name, stored] : files_.front()->tensors())
      layers = std::max(layers, layer_of(name) + 1);
    for (size_t i = 0; i < files_.size(); ++i) {
      for (const auto& [name, stored] : files_[i]->tensors()) {
        const auto known = used.find(name);
        if (known == used.end()) {
          add_extra(name, stored, layers, account);
        } else if (known->second == Cut::kNone && i > 0 && !has_same_values(name, i)) {
          account.unused.push_back(
              {name, show_shape(stored.shape), "",
               absl::StrFormat("in consolidated.%02d.pth, it differs from the first file's", i)});
        }
      }
    }
    return account;
  }

  absl::StatusOr<Shards> find(const HuggingFaceTensor& tensor) const {
    const Found found = meta_name(tensor.name);
    Shards shards;
    for (size_t i = 0; i < files_.size(); ++i) {
      // Every file contains the complete norms.
      if (found.cut == Cut::kNone && i > 0) break;
      const auto part = files_[i]->tensors().find(found.name);
      if (part == files_[i]->tensors().end())
        return bad(i, absl::StrCat("there is no tensor ", found.name));
      if (part->second.stored == StoredType::kOther) {
        return bad(i, absl::StrCat("tensor ", found.name, " is stored as ", part->second.dtype,
                                   "; float32, bfloat16 and float16 are read"));
      }
      shards.parts.push_back(&part->second);
    }
    const bool rows = is_cut(shards, tensor.shape, 0);
    const bool columns = tensor.shape.size() == 2 && is_cut(shards, tensor.shape, 1);
    shards.by_columns = !rows;
    const bool fits = found.cut == Cut::kColumns  ? columns
                      : found.cut == Cut::kEither ? rows || columns
                                                  : rows;
    if (fits) {
      if (found.cut == Cut::kColumns) shards.by_columns = true;
      return shards;
    }
    const std::string shape = show_shape(shards.parts.front()->shape);
    return bad(
        0, absl::StrCat("tensor ", found.name, " has the shape ", shape, " in each of ",
                        shards.parts.size(), " files, or differs between them; ", kMetaParamsFile,
                        " requires ", show_shape(tensor.shape), " in all of them together"));
  }

  // Returns the N of "layers.N."; -1 for other names.
  static int64_t layer_of(const std::string& name) {
    absl::string_view rest = name;
    int64_t layer = -1;
    if (!absl::ConsumePrefix(&rest, "layers.") ||
        !absl::SimpleAtoi(rest.substr(0, rest.find('.')), &layer))
      return -1;
    return layer;
  }

  void add_extra(const std::string& name, const StoredTensor& stored, int64_t layers,
                 TensorAccount& account) const {
    if (name == "rope.freqs") {
      ++account.ignored["rope.freqs: the frequencies of RoPE, which params.json determines"];
      return;
    }
    const bool is_deeper = layer_of(name) >= description().model.num_layers;
    account.unused.push_back({name, absl::StrCat(stored.dtype, " ", show_shape(stored.shape)),
                              is_deeper ? absl::StrCat("\"n_layers\": ", layers) : "", ""});
  }

  // Returns whether a norm in file `i` equals that of the first file, whose norms are read.
  bool has_same_values(const std::string& name, size_t i) const {
    const StoredTensor& first = files_.front()->tensors().at(name);
    const StoredTensor& other = files_[i]->tensors().at(name);
    if (first.shape != other.shape || other.stored == StoredType::kOther) return false;
    std::vector<float> ours(first.elements);
    std::vector<float> theirs(other.elements);
    return files_.front()->read(first, 0, ours).ok() && files_[i]->read(other, 0, theirs).ok() &&
           std::memcmp(ours.data(), theirs.data(), ours.size() * sizeof(float)) == 0;
  }

  // Returns whether all parts have an equal share of `dimension` and all indices of the other
  // dimensions.
  static bool is_cut(const Shards& shards, std::vector<int64_t> shape, size_t dimension) {
    const auto count = static_cast<int64_t>(shards.parts.size());
    if (shape[dimension] % count != 0) return false;
    shape[dimension] /= count;
    return std::all_of(shards.parts.begin(), shards.parts.end(),
                       [&](const StoredTensor* part) { return part->shape == shape; });
  }

  ReadElements parts_of(const Shards& shards, size_t file) const {
    return [this, file, part = shards.parts[file]](uint64_t first, std::span<float> out) {
      return files_[file]->read(*part, first, out);
    };
  }
  absl::Status check_no_part_is_missing_in(const std::string& tensor, const Shards& shards) const {
    for (size_t i = 0; i < shards.parts.size(); ++i) {
      const auto status =
          check_no_part_is_missing(meta_name(tensor).name, *shards.parts[i], parts_of(shards, i));
      if (absl::IsDataLoss(status)) return in_file(status, i);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Reads (rows, columns) from parts of (rows, columns / parts).
  absl::Status read_columns(const Shards& shards, std::span<float> out) const {
    const auto rows = static_cast<size_t>(shards.parts.front()->shape[0]);
    const auto width = static_cast<size_t>(shards.parts.front()->shape[1]);
    const size_t columns = width * shards.parts.size();
    absl::Status status;
    for (size_t i = 0; i < shards.parts.size(); ++i) {
      for (size_t row = 0; row < rows && status.ok(); ++row)
        status = files_[i]->read(*shards.parts[i], row * width,
                                 out.subspan(row * columns + i * width, width));
    }
    return status;
  }

  absl::Status bad(size_t file, const std::string& what) const {
    return in_file(absl::InvalidArgumentError(what), file);
  }
  absl::Status in_file(const absl::Status& status, size_t file) const {
    return absl::Status(
        status.code(),
        absl::StrCat(description().folder, "/", absl::StrFormat("consolidated.%02d.pth: ", file),
                     status.message()));
  }

  TorchFiles files_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ParameterSource>> open_meta(const std::string& folder,
                                                           UnusedTensorPolicy unused) {
  const std::string path = absl::StrCat(folder, "/", kMetaParamsFile);
  const auto params = read_json_file(path, kParamsBytesMax);
  if (!params.ok()) return params.status();
  auto files = open_files(folder);
  if (!files.ok()) return files.status();
  const auto& first = files->front()->tensors();
  const auto head = first.find("output.weight");
  if (head == first.end() || head->second.shape.size() != 2 || head->second.elements == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, "/", kMetaFirstFile, ": there is no matrix output.weight"));
  }
  ParameterDescription description;
  description.format = ParameterFormat::kMeta;
  description.folder = folder;
  description.stored = head->second.stored;
  const auto vocab_rows = head->second.shape[0] * static_cast<int64_t>(files->size());
  if (auto status = read_meta_params(*params, vocab_rows, description); !status.ok())
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", status.message()));
  auto source = absl::make_unique<MetaSource>(std::move(description), *std::move(files));
  if (auto status = source->check(); !status.ok()) return status;
  if (auto status = source->count_tensors(unused); !status.ok()) return status;
  source->note_zeros();
  return source;
}

}  // namespace muster::trainer
