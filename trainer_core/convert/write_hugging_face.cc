#include "trainer_core/convert/write_hugging_face.h"

#include <memory>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/files/file_write.h"
#include "common/text/absl_view.h"
#include "trainer_core/checkpoint/safetensors_stream.h"

namespace muster::trainer {
namespace {

using nlohmann::ordered_json;
using Tensors = std::vector<HuggingFaceTensor>;

// Groups consecutive tensors until a file is full, like transformers' save_pretrained().
std::vector<Tensors> split_into_files(const Tensors& tensors, StoredType stored,
                                      int64_t shard_bytes) {
  std::vector<Tensors> files(1);
  int64_t bytes = 0;
  for (const HuggingFaceTensor& tensor : tensors) {
    const int64_t more = tensor.elements() * static_cast<int64_t>(stored_bytes(stored));
    if (!files.back().empty() && more > shard_bytes - bytes) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().push_back(tensor);
    bytes += more;
  }
  return files;
}

std::string file_name(size_t file, size_t files) {
  return files == 1 ? kHuggingFaceSingleFile
                    : absl::StrFormat("model-%05d-of-%05d.safetensors", file + 1, files);
}

absl::Status write_json(const std::string& path, const ordered_json& content) {
  return write_file_atomically(path, content.dump(2) + "\n",
                               {.durability = Durability::kPowerLoss});
}

class Writer {
 public:
  Writer(const ParameterSource& source, const HuggingFaceExport& exported, StoredType stored,
         const BeforeTensor& before)
      : source_(source), exported_(exported), stored_(stored), before_(before) {}

  absl::Status write_file(const std::string& path, const Tensors& tensors) {
    std::vector<TensorHeader> headers;
    for (const HuggingFaceTensor& tensor : tensors)
      headers.push_back({tensor.name, tensor.shape, stored_});
    const auto stream = SafetensorsStream::create(path, headers);
    if (!stream.ok()) return stream.status();
    for (const HuggingFaceTensor& tensor : tensors) {
      if (auto status = before_(done_); !status.ok()) return status;
      if (auto status = write_tensor(tensor, **stream); !status.ok()) return status;
      done_ += tensor.elements();
    }
    const auto bytes = (*stream)->finish();
    if (!bytes.ok()) return bytes.status();
    ++written_.files;
    written_.bytes += *bytes;
    written_.rounded += (*stream)->rounded();
    return absl::OkStatus();
  }

  const WrittenWeights& written() const { return written_; }

 private:
  absl::Status write_tensor(const HuggingFaceTensor& tensor, SafetensorsStream& stream) {
    ours_.resize(static_cast<size_t>(tensor.elements()));
    if (auto status = source_.read(tensor, ours_); !status.ok()) return status;
    exported_.adapt(tensor, ours_);
    const absl::Status status = tensor.transposed
                                    ? stream.append(in_their_layout(tensor, ours_), stored_)
                                    : stream.append(ours_, stored_);
    if (!absl::IsOutOfRange(status)) return status;
    return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name, ": ", status.message(),
                                                   "; write bfloat16 or float32"));
  }

  const ParameterSource& source_;
  const HuggingFaceExport& exported_;
  const StoredType stored_;
  const BeforeTensor& before_;
  std::vector<float> ours_;  // one tensor in Muster's layout
  int64_t done_ = 0;
  WrittenWeights written_;
};

}  // namespace

absl::StatusOr<WrittenWeights> write_hugging_face(const ParameterSource& source,
                                                  const HuggingFaceExport& exported,
                                                  StoredType stored, int64_t shard_bytes,
                                                  const std::string& folder,
                                                  const BeforeTensor& before) {
  const std::vector<Tensors> files = split_into_files(exported.tensors, stored, shard_bytes);
  Writer writer(source, exported, stored, before);
  ordered_json index = {{"metadata", {{"total_size", 0}}}, {"weight_map", ordered_json::object()}};
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = file_name(i, files.size());
    if (auto status = writer.write_file(absl::StrCat(folder, "/", name), files[i]); !status.ok())
      return status;
    for (const HuggingFaceTensor& tensor : files[i]) index["weight_map"][tensor.name] = name;
  }
  index["metadata"]["total_size"] =
      source.parameters() * static_cast<int64_t>(stored_bytes(stored));
  if (files.size() > 1) {
    if (auto status = write_json(absl::StrCat(folder, "/", kHuggingFaceIndexFile), index);
        !status.ok())
      return status;
  }
  ordered_json config = exported.config;
  // torch_dtype is the older of the key's two names, which every version of transformers reads.
  config["torch_dtype"] = std::string(type_name(stored));
  if (auto status = write_json(absl::StrCat(folder, "/", kHuggingFaceConfigFile), config);
      !status.ok())
    return status;
  return writer.written();
}

}  // namespace muster::trainer
