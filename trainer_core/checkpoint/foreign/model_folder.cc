#include "trainer_core/checkpoint/foreign/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <string_view>
#include <system_error>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/file_kind.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/checkpoint/foreign/hugging_face.h"
#include "trainer_core/checkpoint/foreign/meta_folder.h"
#include "trainer_core/checkpoint/foreign/peft_folder.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

// Folders of models have tens of entries; a folder with more is searched in part.
constexpr size_t kEntriesMax = 10'000;
constexpr size_t kEntriesShown = 6;
constexpr size_t kAdapterBytesMax = 1 << 20;

constexpr std::string_view kFromPyTorch =
    "save it as safetensors: AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW)";

// A format of other programs, by the name of a file or a folder in it.
struct ForeignName {
  std::string_view begins;
  std::string_view ends;
  std::string_view what;
  std::string_view remedy;
};
constexpr ForeignName kForeignNames[] = {
    {"", ".gguf", "llama.cpp's format GGUF", "take the Hugging Face folder that it was made from"},
    {"ggml-", ".bin", "an old format of llama.cpp",
     "take the Hugging Face folder that it was made from"},
    {"pytorch_model", ".bin", "PyTorch's pickles", kFromPyTorch},
    {"pytorch_model", ".bin.index.json", "PyTorch's pickles", kFromPyTorch},
    {"tf_model", ".h5", "TensorFlow's format",
     "save it as safetensors: from_pretrained(DIR, from_tf=True).save_pretrained(NEW)"},
    {"flax_model", ".msgpack", "Flax's format",
     "save it as safetensors: from_pretrained(DIR, from_flax=True).save_pretrained(NEW)"},
    {"", ".onnx", "ONNX", "take the Hugging Face folder that it was made from"},
    {"rust_model", ".ot", "rust-bert's format", "take a folder with model.safetensors"},
    {"", ".nemo", "NeMo's archive", "export it with NeMo's convert_llama_nemo_to_hf.py"},
    {"", ".distcp", "PyTorch's distributed checkpoint",
     "join it with torch.distributed.checkpoint.format_utils dcp_to_torch, then save it as "
     "safetensors"},
    {"mp_rank_", ".pt", "a checkpoint of DeepSpeed or Megatron",
     "join it with zero_to_fp32.py or the program's own converter to Hugging Face"},
    {"zero_pp_rank_", ".pt", "a checkpoint of DeepSpeed", "join it with zero_to_fp32.py"},
    {"latest_checkpointed_iteration", ".txt", "a checkpoint of Megatron-LM",
     "convert it with Megatron's tools/checkpoint/convert.py --saver hf"},
    {"_CHECKPOINT_METADATA", "", "an Orbax checkpoint, the format of MaxText and Pax",
     "export it with MaxText's llama_mistral_mixtral_orbax_to_hf.py"},
    {"_METADATA", "", "an Orbax checkpoint, the format of MaxText and Pax",
     "export it with MaxText's llama_mistral_mixtral_orbax_to_hf.py"},
    {"", ".ckpt", "a checkpoint of Lightning or TensorFlow", kFromPyTorch},
    {"openvino_model", ".xml", "OpenVINO", "take the Hugging Face folder that it was made from"},
    {"", ".engine", "TensorRT", "take the Hugging Face folder that it was made from"},
    {"", ".tflite", "TensorFlow Lite", "take the Hugging Face folder that it was made from"},
    {"", ".mlmodel", "Core ML", "take the Hugging Face folder that it was made from"},
    {"model", ".bin", "CTranslate2 or PyTorch", "take a folder with model.safetensors"},
    {"", ".npz", "NumPy or MLX", "take a folder with model.safetensors"},
    {"", ".tar.gz", "an archive", "unpack it and name the folder in it"},
    {"", ".tgz", "an archive", "unpack it and name the folder in it"},
    {"", ".tar", "an archive", "unpack it and name the folder in it"},
    {"", ".zip", "an archive", "unpack it and name the folder in it"},
};

absl::Status invalid(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

// The entries of a folder by name.
std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error);
       !error && entry != fs::directory_iterator() && names.size() < kEntriesMax;
       entry.increment(error))
    names.insert(entry->path().filename().string());
  return names;
}

std::string first_unfinished(const fs::path& folder) {
  for (const std::string& name : names_in(folder)) {
    if (is_unfinished_download(name)) return (folder / name).string();
  }
  return "";
}

absl::Status check_adapter(const std::string& folder, const std::set<std::string>& names) {
  if (!names.contains(kPeftConfigFile) && !names.contains(kPeftWeightsFile) &&
      !names.contains("adapter_model.bin"))
    return absl::OkStatus();
  const auto config = read_json_file(absl::StrCat(folder, "/", kPeftConfigFile), kAdapterBytesMax);
  std::string base = "its base model";
  if (config.ok() && config->is_object() && config->contains("base_model_name_or_path") &&
      config->at("base_model_name_or_path").is_string())
    base = show_json(config->at("base_model_name_or_path"));
  return invalid(
      folder,
      absl::StrCat("this is an adapter (LoRA) of ", base, ", not a model, and the folder has no ",
                   names.contains(kPeftConfigFile) ? kPeftWeightsFile : kPeftConfigFile,
                   ": save it again with PEFT (save_pretrained)"));
}

// A hub cache has one folder per revision below snapshots.
absl::Status check_hub_cache(const std::string& folder, const std::set<std::string>& names) {
  if (!names.contains("snapshots")) return absl::OkStatus();
  const std::set<std::string> revisions = names_in(fs::path(folder) / "snapshots");
  if (revisions.empty()) {
    return absl::NotFoundError(absl::StrCat(
        folder,
        ": this is a cache of the Hugging Face Hub without a revision: repeat hf download"));
  }
  return absl::NotFoundError(absl::StrCat(
      folder, ": this is a cache of the Hugging Face Hub; name the folder of a revision: ", folder,
      "/snapshots/", *revisions.begin()));
}

absl::Status check_interrupted(const std::string& folder, const std::set<std::string>& names) {
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(folder, "/", name);
    if (const std::string problem = dangling_problem(path); !problem.empty())
      return absl::NotFoundError(absl::StrCat(path, ": ", problem));
  }
  std::string unfinished = first_unfinished(folder);
  if (unfinished.empty())
    unfinished = first_unfinished(fs::path(folder) / ".cache" / "huggingface" / "download");
  if (unfinished.empty()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(folder, ": the download stopped (", unfinished,
                                          "): repeat it, hf download continues it"));
}

// Returns what a file has that its name does not state: a pointer, a GGUF file called .bin, a
// download that failed; "" for a folder, and for the content that the name promises.
std::string other_content(const std::string& path) {
  std::error_code error;
  const uintmax_t bytes = fs::is_regular_file(path, error) ? fs::file_size(path, error) : 0;
  const std::string begins = first_bytes(path);
  if (begins.empty() || error) return "";
  if (const auto pointer = check_no_pointer("", begins, bytes); !pointer.ok())
    return foreign_file_problem(begins, bytes);
  const bool is_named_so = absl::EndsWith(path, ".bin") || absl::EndsWith(path, ".pt");
  const bool is_torch = begins.starts_with("PK\x03\x04") || begins.starts_with("\x80");
  return is_named_so && !is_torch ? foreign_file_problem(begins, bytes) : "";
}

absl::Status check_foreign_names(const std::string& folder, const std::set<std::string>& names) {
  for (const ForeignName& foreign : kForeignNames) {
    for (const std::string& name : names) {
      if (!name.starts_with(foreign.begins) || !absl::EndsWithIgnoreCase(name, av(foreign.ends)))
        continue;
      if (foreign.ends.empty() && name != foreign.begins) continue;
      if (const std::string other = other_content(absl::StrCat(folder, "/", name)); !other.empty())
        return invalid(absl::StrCat(folder, "/", name), other);
      return invalid(folder, absl::StrCat(name, " is of ", av(foreign.what),
                                          ", which is not read: ", av(foreign.remedy)));
    }
  }
  return absl::OkStatus();
}

// Half of what a format needs.
absl::Status check_halves(const std::string& folder, const std::set<std::string>& names) {
  const auto missing = [&](const std::string& what) {
    return absl::NotFoundError(absl::StrCat(folder, ": ", what));
  };
  const auto ends_with = [&](std::string_view ending) {
    return std::find_if(names.begin(), names.end(),
                        [&](const std::string& name) { return name.ends_with(ending); });
  };
  const auto weights = ends_with(".safetensors");
  const bool has_config = names.contains(kHuggingFaceConfigFile);
  if (has_config && weights != names.end()) {
    return missing(absl::StrCat(*weights, " is there, but neither ", kHuggingFaceSingleFile,
                                " nor ", kHuggingFaceIndexFile,
                                "; download the folder again, or rename the only file"));
  }
  if (has_config) {
    return missing(absl::StrCat("there is ", kHuggingFaceConfigFile, " without weights (",
                                kHuggingFaceSingleFile, " or ", kHuggingFaceIndexFile,
                                "); download them, too"));
  }
  if (weights != names.end()) {
    return missing(absl::StrCat("there is ", *weights, " without ", kHuggingFaceConfigFile,
                                ", which describes the model; download it, too"));
  }
  if (names.contains(kMetaParamsFile)) {
    return missing(absl::StrCat("there is ", kMetaParamsFile, " without ", kMetaFirstFile,
                                "; download it, too"));
  }
  if (ends_with(".pth") != names.end()) {
    return missing(absl::StrCat("there is ", *ends_with(".pth"), ", but not both of ",
                                kMetaParamsFile, " and ", kMetaFirstFile));
  }
  return absl::OkStatus();
}

// A folder that only contains the model's folder.
absl::Status check_inner_folder(const std::string& folder, const std::set<std::string>& names) {
  std::error_code error;
  for (const std::string& name : names) {
    const fs::path inner = fs::path(folder) / name;
    if (!fs::exists(inner / kHuggingFaceConfigFile, error) &&
        !fs::exists(inner / kMetaParamsFile, error))
      continue;
    return absl::NotFoundError(
        absl::StrCat(folder, ": no model is there, but a folder with one: name ", inner.string()));
  }
  return absl::OkStatus();
}

// Returns a clause with the names of a folder's first entries.
std::string entries_text(const std::set<std::string>& names) {
  if (names.empty()) return "it is empty";
  std::string text = "it has ";
  size_t shown = 0;
  for (const std::string& name : names) {
    if (shown == kEntriesShown) return absl::StrCat(text, " and ", names.size() - shown, " more");
    absl::StrAppend(&text, shown++ == 0 ? "" : ", ", name);
  }
  return text;
}

}  // namespace

absl::Status explain_model_file(const std::string& path) {
  std::error_code error;
  const uintmax_t bytes = fs::file_size(path, error);
  const std::string problem =
      error ? std::string() : foreign_file_problem(first_bytes(path), static_cast<uint64_t>(bytes));
  return absl::InvalidArgumentError(
      absl::StrCat(path, " is a file, not a model; name the folder that the model's files are in",
                   problem.empty() ? "" : absl::StrCat(" (", problem, ")")));
}

absl::Status explain_model_folder(const std::string& folder) {
  const std::set<std::string> names = names_in(folder);
  for (const auto check : {check_adapter, check_hub_cache, check_interrupted, check_foreign_names,
                           check_halves, check_inner_folder}) {
    if (auto status = check(folder, names); !status.ok()) return status;
  }
  return absl::NotFoundError(absl::StrCat(
      folder, ": no model is there; ", entries_text(names),
      ". A run of muster has a folder checkpoints; a Hugging Face folder has ",
      kHuggingFaceConfigFile, " and ", kHuggingFaceSingleFile, " (or ", kHuggingFaceIndexFile,
      "); Meta's has ", kMetaParamsFile, " and ", kMetaFirstFile));
}

}  // namespace muster::trainer
