#include "trainer_core/checkpoint/foreign/torch_file.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "trainer_core/checkpoint/foreign/tensor_pickle.h"

namespace muster::trainer {
namespace {

struct StorageType {
  std::string_view name;
  StoredType stored;
  uint64_t bytes;  // bytes of an element
};
constexpr StorageType kStorageTypes[] = {
    {"FloatStorage", StoredType::kF32, 4},     {"HalfStorage", StoredType::kF16, 2},
    {"BFloat16Storage", StoredType::kBf16, 2}, {"DoubleStorage", StoredType::kOther, 8},
    {"LongStorage", StoredType::kOther, 8},    {"IntStorage", StoredType::kOther, 4},
    {"ShortStorage", StoredType::kOther, 2},   {"CharStorage", StoredType::kOther, 1},
    {"ByteStorage", StoredType::kOther, 1},    {"BoolStorage", StoredType::kOther, 1}};

// Finds the entry of the pickle, such as "archive/data.pkl". The name of the folder is that of the
// file when it was saved.
const std::pair<const std::string, StoredZip::Entry>* find_pickle(const StoredZip& zip) {
  for (const auto& entry : zip.entries()) {
    if (absl::EndsWith(entry.first, "/data.pkl")) return &entry;
  }
  return nullptr;
}

// Returns whether the elements are dense and row-major: sizes of 1 may have any stride.
bool is_dense(const PickledTensor& tensor, uint64_t elements) {
  if (elements == 0) return true;
  int64_t stride = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != stride) return false;
    stride *= tensor.shape[i];
  }
  return true;
}

// Locates a tensor in a storage of `there` bytes that begins at byte `begin`. Error messages
// continue "tensor x ".
absl::StatusOr<StoredTensor> locate(const PickledTensor& pickled, uint64_t begin, uint64_t there) {
  const auto* const type =
      std::find_if(std::begin(kStorageTypes), std::end(kStorageTypes),
                   [&](const StorageType& known) { return known.name == pickled.storage_type; });
  if (type == std::end(kStorageTypes))
    return absl::InvalidArgumentError(absl::StrCat("is of type ", pickled.storage_type));
  const uint64_t elements = there / type->bytes;
  if (pickled.storage_elements != elements || there % type->bytes != 0) {
    return absl::DataLossError(absl::StrCat("has a storage of ", pickled.storage_elements,
                                            " elements of ", type->bytes,
                                            " bytes, but the file has ", there, " bytes of it"));
  }
  StoredTensor tensor{type->stored, pickled.storage_type, pickled.shape, 1, 0};
  for (const int64_t size : pickled.shape) {
    const auto n = static_cast<uint64_t>(size);
    // Divides instead of multiplying, so that a hostile shape cannot overflow.
    if (n != 0 && tensor.elements > elements / n) {
      return absl::DataLossError(
          absl::StrCat("has the shape ", show_shape(pickled.shape), " in ", elements, " elements"));
    }
    tensor.elements *= n;
  }
  if (pickled.offset > elements || tensor.elements > elements - pickled.offset) {
    return absl::DataLossError(absl::StrCat("has ", tensor.elements, " elements from element ",
                                            pickled.offset, " on in a storage of ", elements));
  }
  if (!is_dense(pickled, tensor.elements)) {
    return absl::InvalidArgumentError(
        "does not lie row by row in its storage; save it as tensor.contiguous()");
  }
  tensor.offset = begin + pickled.offset * type->bytes;
  return tensor;
}

bool is_legacy(const std::string& path) {
  const auto file = MappedFile::open(path);
  // A pickle of protocol 2 begins with the byte 0x80.
  return file.ok() && (*file)->bytes().size() >= 2 && (*file)->bytes()[0] == '\x80' &&
         (*file)->bytes()[1] == '\x02';
}

}  // namespace

absl::StatusOr<std::unique_ptr<TorchFile>> TorchFile::open(const std::string& path) {
  auto zip = StoredZip::open(path);
  if (!zip.ok()) {
    if (absl::IsInvalidArgument(zip.status()) && is_legacy(path)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path,
                       ": byte 0: this is torch.save's format of before PyTorch 1.6; load it with "
                       "torch.load(path, weights_only=True) and save it again with torch.save"));
    }
    return zip.status();
  }
  auto file = absl::WrapUnique(new TorchFile(*std::move(zip)));
  if (auto status = file->find_tensors(); !status.ok())
    return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  return file;
}

absl::Status TorchFile::find_tensors() {
  const auto* const pickle = find_pickle(*zip_);
  if (pickle == nullptr) {
    return absl::InvalidArgumentError(
        "byte 0: it is a zip archive without a data.pkl, so torch.save has not written it");
  }
  const auto& [name, entry] = *pickle;
  const std::string folder = name.substr(0, name.size() - std::string_view("data.pkl").size());
  const auto order = zip_->entries().find(folder + "byteorder");
  if (order != zip_->entries().end()) {
    const std::span<const char> text = zip_->bytes(order->second);
    if (std::string_view(text.data(), text.size()) != "little") {
      return absl::InvalidArgumentError(
          absl::StrCat("byte ", order->second.offset,
                       ": its elements are not little-endian; save it on a "
                       "little-endian machine"));
    }
  }
  const auto pickled = read_tensor_pickle(zip_->bytes(entry));
  if (!pickled.ok()) {
    return absl::Status(
        pickled.status().code(),
        absl::StrCat(name, " (from byte ", entry.offset, " on), ", pickled.status().message()));
  }
  for (const auto& [tensor, where] : *pickled) {
    const auto storage = zip_->entries().find(absl::StrCat(folder, "data/", where.storage));
    if (storage == zip_->entries().end()) {
      return absl::DataLossError(absl::StrCat("byte ", entry.offset, ": tensor ", tensor,
                                              " lies in ", folder, "data/", where.storage,
                                              ", which is not there"));
    }
    auto stored = locate(where, storage->second.offset, storage->second.bytes);
    if (!stored.ok()) {
      return absl::Status(stored.status().code(),
                          absl::StrCat("byte ", storage->second.offset, ": tensor ", tensor, " ",
                                       stored.status().message()));
    }
    tensors_.emplace(tensor, *std::move(stored));
  }
  return absl::OkStatus();
}

absl::Status TorchFile::read(const StoredTensor& tensor, uint64_t first,
                             std::span<float> out) const {
  const MappedFile& file = zip_->file();
  const uint64_t begin = tensor.offset + first * stored_bytes(tensor.stored);
  return file.read([&] { widen(file.bytes().data() + begin, tensor.stored, out); });
}

}  // namespace muster::trainer
