// Distributes the boxes of a writer over files.
#include <algorithm>
#include <cstddef>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/safetensors.h"

namespace muster::trainer {
namespace {

// Assigns boxes to files in order. Each file is as full as possible and has elements of one type,
// so that no element is in two blocks.
std::vector<std::vector<TensorBox>> plan_files(const std::vector<TensorBox>& boxes,
                                               int64_t file_bytes) {
  std::vector<std::vector<TensorBox>> files;
  int64_t elements = 0;  // elements in the last file
  for (const TensorBox& whole : boxes) {
    const int64_t elements_max =
        std::max(file_bytes / static_cast<int64_t>(dtype_bytes(whole.dtype)), int64_t{1});
    for (TensorBox& box : split_box(whole, elements_max)) {
      const bool fits = !files.empty() && files.back().back().dtype == box.dtype &&
                        elements + box.elements() <= elements_max;
      if (!fits) {
        files.emplace_back();
        elements = 0;
      }
      elements += box.elements();
      files.back().push_back(std::move(box));
    }
  }
  return files;
}

// Returns the name of a box in the file. Names must be unique in a file, so the name of a tensor's
// second box contains its begin.
std::string name_in_file(const std::vector<TensorToWrite>& tensors, const TensorBox& box) {
  const bool is_first = tensors.empty() || !(tensors.back().name == box.tensor ||
                                             tensors.back().name.starts_with(box.tensor + "["));
  return is_first ? box.tensor : absl::StrCat(box.tensor, "[", absl::StrJoin(box.begin, ","), "]");
}

absl::StatusOr<StoredFile> write_file(const std::string& folder, StoredFile file,
                                      std::vector<TensorBox> boxes, std::span<const float> block,
                                      SaveMeter* meter) {
  std::vector<TensorToWrite> tensors;
  const auto* const elements = reinterpret_cast<const std::byte*>(block.data());
  for (const TensorBox& box : boxes) {
    const StoredType stored = box.dtype == DType::kBf16 ? StoredType::kBf16 : StoredType::kF32;
    const size_t at = static_cast<size_t>(box.offset) * dtype_bytes(box.dtype);
    tensors.push_back({name_in_file(tensors, box), box.extent, elements + at, stored});
  }
  auto written = write_safetensors(absl::StrCat(folder, "/", file.name), tensors, meter);
  if (!written.ok()) return written.status();
  uint64_t at = written->data_begin;
  for (TensorBox& box : boxes) {
    const uint64_t bytes = static_cast<uint64_t>(box.elements()) * dtype_bytes(box.dtype);
    file.boxes.push_back({std::move(box), std::exchange(at, at + bytes)});
  }
  file.digest = std::move(written->digest);
  return file;
}

}  // namespace

absl::StatusOr<std::vector<StoredFile>> write_boxes(const std::string& folder, CheckpointPart part,
                                                    int writer, const std::vector<TensorBox>& boxes,
                                                    std::span<const float> block,
                                                    int64_t file_bytes, SaveMeter* meter) {
  std::vector<StoredFile> files;
  for (auto& content : plan_files(boxes, file_bytes)) {
    StoredFile file;
    file.name =
        absl::StrFormat("%s-%05d-%05d.safetensors",
                        av(kCheckpointPartNames[static_cast<size_t>(part)]), writer, files.size());
    file.part = part;
    auto written = write_file(folder, std::move(file), std::move(content), block, meter);
    if (!written.ok()) return written.status();
    files.push_back(*std::move(written));
  }
  return files;
}

}  // namespace muster::trainer
