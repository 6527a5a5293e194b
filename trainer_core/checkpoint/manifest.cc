#include "trainer_core/checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/check.h"
#include "trainer_core/checkpoint/stored_tensor.h"

namespace muster::trainer {
namespace {

using nlohmann::json;

constexpr char kFormat[] = "muster-checkpoint";
constexpr char kF32[] = "F32";
constexpr char kBf16[] = "BF16";
// The maximum number of boxes of a tensor. A rank's part of a tensor is a few boxes, so it suffices
// for thousands of ranks. In the worst case all pairs of boxes are compared, which takes a second.
constexpr size_t kBoxesPerTensorMax = 16'384;
// The maximum number of elements of a tensor: more than any tensor has, but far from an overflow.
constexpr int64_t kElementsMax = int64_t{1} << 48;

const char* name_of(CheckpointPart part) {
  return kCheckpointPartNames[static_cast<size_t>(part)].data();
}

uint64_t checksum_of(const json& manifest) {
  const std::string text = manifest.dump();
  return checksum({text.data(), text.size()});
}

// Writing
// -------------------------------------------------------------------------------------------------

json file_to_json(const StoredFile& file) {
  json blocks = json::array();
  for (const uint64_t block : file.digest.blocks) blocks.push_back(checksum_text(block));
  json boxes = json::array();
  for (const StoredBox& stored : file.boxes) {
    boxes.push_back({{"tensor", stored.box.tensor},
                     {"begin", stored.box.begin},
                     {"extent", stored.box.extent},
                     {"at", stored.at}});
  }
  return {{"name", file.name},
          {"part", name_of(file.part)},
          {"bytes", file.digest.bytes},
          {"xxh3", std::move(blocks)},
          {"boxes", std::move(boxes)}};
}

// Reading. parse_manifest() converts the exceptions of the JSON library to DataLoss.
// -------------------------------------------------------------------------------------------------

class Damage : public std::exception {
 public:
  explicit Damage(std::string what) : what_(std::move(what)) {}
  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

template <class... Parts>
[[noreturn]] void damaged(const Parts&... parts) {
  throw Damage(absl::StrCat(parts...));
}

uint64_t count_of(const json& value, const std::string& what) {
  if (!value.is_number_unsigned()) damaged(what, " is ", value.dump(), ", which is no count");
  return value.get<uint64_t>();
}

std::vector<int64_t> sizes_of(const json& value, const std::string& what) {
  if (!value.is_array() || value.size() > kDimensionsMax) damaged(what, " is no short list");
  std::vector<int64_t> sizes;
  for (const json& size : value) {
    const uint64_t number = count_of(size, what);
    if (number > static_cast<uint64_t>(kElementsMax)) damaged(what, " has a size of ", number);
    sizes.push_back(static_cast<int64_t>(number));
  }
  return sizes;
}

// Returns the product; nullopt if it is 0 or above kElementsMax.
std::optional<int64_t> product(const std::vector<int64_t>& sizes) {
  int64_t elements = 1;
  for (const int64_t size : sizes) {
    if (size <= 0 || elements > kElementsMax / size) return std::nullopt;
    elements *= size;
  }
  return elements;
}

struct KnownTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t elements = 0;
  std::vector<TensorBox> boxes{};
};
using KnownTensors = std::map<std::string, KnownTensor>;

KnownTensors parse_tensors(const json& part) {
  KnownTensors tensors;
  for (const auto& [name, entry] : part.items()) {
    const std::string what = absl::StrCat("tensor ", name);
    const json& dtype = entry.at("dtype");
    if (dtype != kF32 && dtype != kBf16)
      damaged(what, " has dtype ", dtype.dump(), "; this program reads ", kF32, " and ", kBf16);
    KnownTensor tensor{.dtype = dtype == kF32 ? DType::kF32 : DType::kBf16,
                       .shape = sizes_of(entry.at("shape"), what + "'s shape")};
    const auto elements = product(tensor.shape);
    if (!elements) damaged(what, "'s shape is ", entry.at("shape").dump());
    tensor.elements = *elements;
    tensors.emplace(name, std::move(tensor));
  }
  return tensors;
}

StoredBox parse_box(const json& entry, const StoredFile& file, KnownTensors& tensors) {
  StoredBox stored;
  stored.box.tensor = entry.at("tensor").get<std::string>();
  const std::string what = absl::StrCat(file.name, ": the box of ", stored.box.tensor);
  const auto known = tensors.find(stored.box.tensor);
  if (known == tensors.end()) damaged(what, " is of a tensor that is not listed");
  stored.box.shape = known->second.shape;
  stored.box.dtype = known->second.dtype;
  stored.box.begin = sizes_of(entry.at("begin"), what);
  stored.box.extent = sizes_of(entry.at("extent"), what);
  const size_t dimensions = stored.box.shape.size();
  bool inside = stored.box.begin.size() == dimensions && stored.box.extent.size() == dimensions;
  for (size_t d = 0; inside && d < dimensions; ++d)
    inside = stored.box.begin[d] + stored.box.extent[d] <= stored.box.shape[d];
  const auto elements = product(stored.box.extent);
  if (!inside || !elements) {
    damaged(what, " begins at ", entry.at("begin").dump(), " with sizes ",
            entry.at("extent").dump(), ", which is not inside the tensor");
  }
  stored.at = count_of(entry.at("at"), what);
  const uint64_t size = dtype_bytes(stored.box.dtype);
  const uint64_t bytes = static_cast<uint64_t>(*elements) * size;
  if (stored.at % size != 0 || bytes > file.digest.bytes || stored.at > file.digest.bytes - bytes) {
    damaged(what, " has ", bytes, " bytes from byte ", stored.at, " on, in a file of ",
            file.digest.bytes);
  }
  known->second.boxes.push_back(stored.box);
  if (known->second.boxes.size() > kBoxesPerTensorMax)
    damaged("tensor ", stored.box.tensor, " is in more than ", kBoxesPerTensorMax, " boxes");
  return stored;
}

// Returns whether a name is that of a file directly in the folder.
bool is_plain(std::string_view name) {
  return name.ends_with(".safetensors") && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

StoredFile parse_file_entry(const json& entry, CheckpointPart part, KnownTensors& tensors) {
  StoredFile file;
  file.part = part;
  file.name = entry.at("name").get<std::string>();
  if (!is_plain(file.name)) damaged("a file's name is ", entry.at("name").dump());
  file.digest.bytes = count_of(entry.at("bytes"), file.name);
  const json& blocks = entry.at("xxh3");
  const uint64_t expected =
      file.digest.bytes / kBlockBytes + (file.digest.bytes % kBlockBytes != 0);
  if (!blocks.is_array() || blocks.size() != expected) {
    damaged(file.name, " has ", file.digest.bytes, " bytes and ", blocks.size(),
            " checksums instead of ", expected);
  }
  for (const json& block : blocks) {
    uint64_t value = 0;
    if (!absl::SimpleHexAtoi(block.get_ref<const std::string&>(), &value))
      damaged(file.name, " has the checksum ", block.dump());
    file.digest.blocks.push_back(value);
  }
  for (const json& box : entry.at("boxes")) file.boxes.push_back(parse_box(box, file, tensors));
  return file;
}

// Returns whether any two boxes overlap. Sweeps along the first dimension and compares each box
// with those that have not ended yet; few have, because the boxes of ranks mostly follow each
// other.
bool any_overlap(std::vector<TensorBox> boxes) {
  if (boxes.size() < 2) return false;
  if (boxes.front().shape.empty()) return true;
  std::ranges::sort(boxes, {}, [](const TensorBox& box) { return box.begin.front(); });
  std::vector<const TensorBox*> beside;
  for (const TensorBox& box : boxes) {
    std::erase_if(beside, [&](const TensorBox* other) {
      return other->begin.front() + other->extent.front() <= box.begin.front();
    });
    if (std::ranges::any_of(beside, [&](const TensorBox* other) { return overlap(box, *other); }))
      return true;
    beside.push_back(&box);
  }
  return false;
}

// Disjoint boxes with as many elements as the tensor cover the tensor.
void check_complete(const KnownTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (any_overlap(tensor.boxes)) damaged("two boxes of tensor ", name, " overlap");
    int64_t elements = 0;
    for (const TensorBox& box : tensor.boxes) elements += box.elements();
    if (elements != tensor.elements) {
      damaged("the boxes of tensor ", name, " have ", elements, " of its ", tensor.elements,
              " elements");
    }
  }
}

CheckpointPart part_of(const json& entry) {
  const json& part = entry.at("part");
  for (const CheckpointPart known : {CheckpointPart::kModel, CheckpointPart::kOptimizer}) {
    if (part == name_of(known)) return known;
  }
  damaged("a file's part is ", part.dump());
}

struct ListedFiles {
  std::array<KnownTensors, 2> tensors;  // indexed by CheckpointPart
  std::vector<StoredFile> files{};
};

ListedFiles parse_file_list(const json& j) {
  ListedFiles listed{{parse_tensors(j.at("tensors").at(name_of(CheckpointPart::kModel))),
                      parse_tensors(j.at("tensors").at(name_of(CheckpointPart::kOptimizer)))}};
  std::set<std::string> names;
  for (const json& entry : j.at("files")) {
    const CheckpointPart part = part_of(entry);
    listed.files.push_back(
        parse_file_entry(entry, part, listed.tensors[static_cast<size_t>(part)]));
    if (!names.insert(listed.files.back().name).second)
      damaged(listed.files.back().name, " is listed twice");
  }
  return listed;
}

Manifest read_body(const json& j) {
  Manifest manifest;
  const uint64_t step = count_of(j.at("step"), "step");
  if (step > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) damaged("step is ", step);
  manifest.info.step = static_cast<int64_t>(step);
  manifest.info.samples = count_of(j.at("samples"), "samples");
  manifest.info.optimizer = j.at("optimizer").get<std::string>();
  manifest.info.config = j.at("config");
  manifest.info.data = j.value("data", json());
  read_optional(j, manifest.info);
  if (j.at("block_bytes") != kBlockBytes)
    damaged("block_bytes is ", j.at("block_bytes").dump(), "; it must be ", kBlockBytes);
  ListedFiles listed = parse_file_list(j);
  for (const KnownTensors& part : listed.tensors) check_complete(part);
  manifest.files = std::move(listed.files);
  return manifest;
}

// Checks the version first, because any other field may differ in a later version.
absl::Status check_version(const json& manifest) {
  if (manifest.at("format") != kFormat)
    return absl::FailedPreconditionError("its manifest has another format");
  const json& version = manifest.at("version");
  if (version == kCheckpointVersion) return absl::OkStatus();
  const bool is_older = version.is_number() && version < kCheckpointVersion;
  return absl::FailedPreconditionError(absl::StrCat(
      "it has version ", version.dump(), "; this program reads ", kCheckpointVersion, ": made by ",
      is_older ? "an earlier" : "a later",
      " build; set another run_name to start from the beginning, or continue with that build"));
}

json parse_bounded(std::string_view text) {
  // The deepest nesting is that of files, file, boxes, box, begin; the config is flat.
  constexpr int kDepthMax = 16;
  bool too_deep = false;
  const auto bound = [&too_deep](int depth, json::parse_event_t, json&) {
    too_deep = too_deep || depth > kDepthMax;
    return !too_deep;
  };
  json manifest = json::parse(text, bound, /*allow_exceptions=*/true);
  if (too_deep || !manifest.is_object()) damaged("it is no object of JSON");
  return manifest;
}

}  // namespace

std::map<std::string, Manifest::Kind> Manifest::tensors(CheckpointPart part) const {
  std::map<std::string, Kind> kinds;
  for (const StoredFile& file : files) {
    if (file.part != part) continue;
    for (const auto& [box, at] : file.boxes) kinds.try_emplace(box.tensor, box.dtype, box.shape);
  }
  return kinds;
}

json files_json(const std::vector<StoredFile>& files) {
  Manifest manifest;
  manifest.files = files;
  json j = {{"tensors", json::object()}, {"files", json::array()}};
  for (const CheckpointPart part : {CheckpointPart::kModel, CheckpointPart::kOptimizer}) {
    json& listed = j["tensors"][name_of(part)] = json::object();
    for (const auto& [name, kind] : manifest.tensors(part))
      listed[name] = {{"dtype", kind.dtype == DType::kF32 ? kF32 : kBf16}, {"shape", kind.shape}};
  }
  for (const StoredFile& file : files) j["files"].push_back(file_to_json(file));
  return j;
}

absl::StatusOr<std::vector<StoredFile>> parse_files(const json& files) {
  try {
    return parse_file_list(files).files;
  } catch (const std::exception& e) {
    return absl::DataLossError(absl::StrCat("a list of files is damaged: ", e.what()));
  }
}

void write_optional(const CheckpointInfo& info, json& j) {
  if (!info.base_hash.empty()) j["base_hash"] = info.base_hash;
  if (!info.evaluation.metric.empty()) j["evaluation"] = progress_json(info.evaluation);
  if (info.spikes != SpikeState{}) j["spikes"] = spike_json(info.spikes);
}

void read_optional(const json& j, CheckpointInfo& info) {
  info.base_hash = j.value("base_hash", "");
  info.evaluation = eval_progress_of(j);
  if (const auto spikes = j.find("spikes"); spikes != j.end())
    info.spikes = spike_state_of(*spikes);
}

std::string manifest_text(const Manifest& manifest, const std::vector<json>& others) {
  json j = files_json(manifest.files);
  for (const json& other : others) {
    for (const auto& [part, tensors] : other.at("tensors").items())
      j["tensors"][part].update(tensors);
    for (const json& file : other.at("files")) j["files"].push_back(file);
  }
  j["format"] = kFormat;
  j["version"] = kCheckpointVersion;
  j["step"] = manifest.info.step;
  j["samples"] = manifest.info.samples;
  j["optimizer"] = manifest.info.optimizer;
  j["config"] = manifest.info.config;
  if (!manifest.info.data.is_null()) j["data"] = manifest.info.data;
  write_optional(manifest.info, j);
  j["block_bytes"] = kBlockBytes;
  const std::string sum = checksum_text(checksum_of(j));
  j["checksum"] = sum;
  return j.dump(1) + "\n";
}

absl::StatusOr<Manifest> parse_manifest(std::string_view text) {
  try {
    json j = parse_bounded(text);
    if (auto status = check_version(j); !status.ok()) return status;
    const std::string stored = j.at("checksum").get<std::string>();
    j.erase("checksum");
    if (stored != checksum_text(checksum_of(j))) damaged("its checksum differs");
    Manifest manifest = read_body(j);
    manifest.checksum = stored;
    return manifest;
  } catch (const std::exception& e) {
    return absl::DataLossError(absl::StrCat(kManifestFile, " is damaged: ", e.what()));
  }
}

}  // namespace muster::trainer
