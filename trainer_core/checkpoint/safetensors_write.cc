#include <bit>

#include <nlohmann/json.hpp>

#include "trainer_core/checkpoint/safetensors.h"

namespace muster::trainer {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are copied as they are in memory");

uint64_t elements_of(const std::vector<int64_t>& shape) {
  uint64_t elements = 1;
  for (const int64_t dim : shape) elements *= static_cast<uint64_t>(dim);
  return elements;
}

const char* dtype_name(StoredType stored) {
  return stored == StoredType::kF32 ? "F32" : stored == StoredType::kBf16 ? "BF16" : "F16";
}

}  // namespace

std::string safetensors_header(const std::vector<TensorHeader>& tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}, {"writer", "muster"}};
  uint64_t offset = 0;
  for (const TensorHeader& tensor : tensors) {
    const uint64_t end = offset + elements_of(tensor.shape) * stored_bytes(tensor.stored);
    header[tensor.name] = {{"dtype", dtype_name(tensor.stored)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string json = header.dump();
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + json;
}

absl::StatusOr<WrittenSafetensors> write_safetensors(const std::string& path,
                                                     const std::vector<TensorToWrite>& tensors,
                                                     SaveMeter* meter) {
  auto writer = BlockWriter::create(path, meter);
  if (!writer.ok()) return writer.status();
  std::vector<TensorHeader> headers;
  for (const TensorToWrite& tensor : tensors)
    headers.push_back({tensor.name, tensor.shape, tensor.stored});
  const std::string header = safetensors_header(headers);
  absl::Status status = (*writer)->append(header);
  for (const TensorToWrite& tensor : tensors) {
    if (!status.ok()) return status;
    status = (*writer)->append({static_cast<const char*>(tensor.data),
                                elements_of(tensor.shape) * stored_bytes(tensor.stored)});
  }
  if (!status.ok()) return status;
  auto digest = (*writer)->finish();
  if (!digest.ok()) return digest.status();
  return WrittenSafetensors{*std::move(digest), header.size()};
}

}  // namespace muster::trainer
