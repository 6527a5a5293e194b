#include "trainer_core/checkpoint/safetensors_stream.h"

#include <algorithm>
#include <cmath>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster::trainer {
namespace {

// The number of elements that are converted at a time: they are still in the cache when they are
// written.
constexpr size_t kPiece = size_t{1} << 16;

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsStream>> SafetensorsStream::create(
    const std::string& path, const std::vector<TensorHeader>& tensors) {
  auto file = BlockWriter::create(path);
  if (!file.ok()) return file.status();
  if (auto status = (*file)->append(safetensors_header(tensors)); !status.ok()) return status;
  return absl::WrapUnique(new SafetensorsStream(*std::move(file)));
}

absl::Status SafetensorsStream::append(std::span<const float> elements, StoredType stored) {
  std::vector<char> bytes(std::min(elements.size(), kPiece) * stored_bytes(stored));
  std::vector<float> back(std::min(elements.size(), kPiece));
  while (!elements.empty()) {
    const std::span<const float> piece = elements.first(std::min(elements.size(), kPiece));
    narrow(piece, stored, bytes.data());
    if (stored != StoredType::kF32) {
      widen(bytes.data(), stored, std::span(back).first(piece.size()));
      for (size_t i = 0; i < piece.size(); ++i) {
        if (std::isinf(back[i]) && std::isfinite(piece[i])) {
          return absl::OutOfRangeError(
              absl::StrCat(piece[i], " is beyond the largest number of ", av(type_name(stored))));
        }
        if (back[i] != piece[i] && !std::isnan(piece[i])) ++rounded_;
      }
    }
    const size_t count = piece.size() * stored_bytes(stored);
    if (auto status = file_->append({bytes.data(), count}); !status.ok()) return status;
    elements = elements.subspan(piece.size());
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> SafetensorsStream::finish() {
  const auto digest = file_->finish();
  return digest.ok() ? absl::StatusOr<uint64_t>(digest->bytes) : digest.status();
}

}  // namespace muster::trainer
