#include <algorithm>
#include <cstring>
#include <string_view>
#include <tuple>
#include <vector>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/text/absl_view.h"
#include "trainer_core/base/file_kind.h"
#include "trainer_core/checkpoint/safetensors.h"

namespace muster::trainer {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
// The maximum nesting of a header; the deepest is {"tensor": {"shape": [ … ]}}.
constexpr int kHeaderDepthMax = 4;

struct NamedType {
  std::string_view name;
  StoredType stored;
  size_t bytes;  // bytes of an element
};
// The types of the format whose elements have a whole number of bytes.
constexpr NamedType kStoredTypes[] = {
    {"F32", StoredType::kF32, 4},      {"BF16", StoredType::kBf16, 2},
    {"F16", StoredType::kF16, 2},      {"F64", StoredType::kOther, 8},
    {"I64", StoredType::kOther, 8},    {"U64", StoredType::kOther, 8},
    {"I32", StoredType::kOther, 4},    {"U32", StoredType::kOther, 4},
    {"I16", StoredType::kOther, 2},    {"U16", StoredType::kOther, 2},
    {"I8", StoredType::kOther, 1},     {"U8", StoredType::kOther, 1},
    {"BOOL", StoredType::kOther, 1},   {"F8_E4M3", StoredType::kOther, 1},
    {"F8_E5M2", StoredType::kOther, 1}};

const NamedType* find_type(std::string_view name) {
  for (const NamedType& type : kStoredTypes) {
    if (name == type.name) return &type;
  }
  return nullptr;
}

// Parses the entry of a tensor. `data_bytes` is the number of bytes after the header. Throws the
// exceptions of the JSON library for wrong types.
absl::StatusOr<StoredTensor> parse_entry(const json& j, uint64_t data_bytes) {
  StoredTensor entry;
  entry.dtype = j.at("dtype").get<std::string>();
  const NamedType* type = find_type(entry.dtype);
  if (type == nullptr) return absl::DataLossError("its dtype is none of the format's");
  entry.stored = type->stored;
  const json& shape = j.at("shape");
  if (!shape.is_array() || shape.size() > kDimensionsMax)
    return absl::DataLossError("shape is not a short list");
  entry.elements = 1;
  for (const json& dim : shape) {
    if (!dim.is_number_unsigned()) return absl::DataLossError("shape is not a list of sizes");
    const auto size = dim.get<uint64_t>();
    // Divides instead of multiplying, so that a hostile shape cannot overflow.
    if (size != 0 && entry.elements > data_bytes / size) {
      return absl::DataLossError("shape has more elements than the file has bytes");
    }
    entry.elements *= size;
    entry.shape.push_back(static_cast<int64_t>(size));
  }
  const json& offsets = j.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return absl::DataLossError("data_offsets is not a pair of numbers");
  }
  const auto begin = offsets[0].get<uint64_t>();
  const auto end = offsets[1].get<uint64_t>();
  if (begin > end || end > data_bytes) {
    return absl::DataLossError(
        absl::StrCat("data_offsets ", begin, " to ", end, " in ", data_bytes,
                     " bytes of data; if the file was downloaded, download it again"));
  }
  const uint64_t bytes = entry.elements * type->bytes;
  if (end - begin != bytes) {
    return absl::DataLossError(
        absl::StrCat("data_offsets span ", end - begin, " bytes; the shape takes ", bytes));
  }
  entry.offset = begin;
  return entry;
}

// Checks the format's rule: tensors are contiguous, and the file contains nothing else.
absl::Status check_layout(const std::map<std::string, StoredTensor>& tensors, uint64_t data_start,
                          uint64_t file_bytes) {
  std::vector<std::tuple<uint64_t, uint64_t, absl::string_view>> ranges;  // begin, end, name
  for (const auto& [name, tensor] : tensors) {
    const uint64_t bytes = tensor.elements * find_type(tensor.dtype)->bytes;
    ranges.emplace_back(tensor.offset, tensor.offset + bytes, name);
  }
  std::ranges::sort(ranges);
  uint64_t end = data_start;
  absl::string_view before = "the header";
  for (const auto& [range_begin, range_end, name] : ranges) {
    if (range_begin != end) {
      return absl::DataLossError(absl::StrCat("tensor ", name, " begins at byte ", range_begin,
                                              " of the file, but ", before, " ends at byte ", end));
    }
    end = range_end;
    before = name;
  }
  if (end == file_bytes) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("it has ", file_bytes, " bytes, but ", before,
                                          ", which is the last in it, ends at byte ", end));
}

absl::StatusOr<json> parse_header(const char* begin, const char* end) {
  bool too_deep = false;
  const auto bound_depth = [&too_deep](int depth, json::parse_event_t, json&) {
    too_deep = too_deep || depth > kHeaderDepthMax;
    return !too_deep;
  };
  json header = json::parse(begin, end, bound_depth, /*allow_exceptions=*/false);
  if (too_deep || header.is_discarded() || !header.is_object())
    return absl::DataLossError("the header is not the JSON of a safetensors file");
  return header;
}

// Returns a clause that shows the beginning of a text in place of a safetensors file, such as an
// answer of a server; "" for other bytes.
std::string text_in_place(std::span<const char> bytes) {
  constexpr size_t kShown = 60;
  const std::string_view text(bytes.data(), std::min(bytes.size(), kShown));
  const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  const bool is_text = line.size() >= kLengthBytes &&
                       std::ranges::all_of(line, [](char c) { return c >= ' ' && c <= '~'; });
  return is_text ? absl::StrCat("; it is a text: \"", av(line), "\"") : "";
}

std::string_view begins_of(std::span<const char> bytes) {
  return {bytes.data(), std::min(bytes.size(), kFileKindBytes)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::open(const std::string& path) {
  auto mapped = MappedFile::open(path);
  if (!mapped.ok()) return mapped.status();
  const size_t bytes = (*mapped)->bytes().size();
  const std::string problem = foreign_file_problem(begins_of((*mapped)->bytes()), bytes);
  if (bytes < kLengthBytes) {
    return absl::DataLossError(absl::StrCat(path, " is no safetensors file: it has ", bytes,
                                            " bytes",
                                            problem.empty() ? "" : absl::StrCat("; ", problem)));
  }
  auto file = absl::WrapUnique(new SafetensorsFile(*std::move(mapped)));
  if (auto status = file->parse(); !status.ok()) {
    if (!problem.empty()) return absl::DataLossError(absl::StrCat(path, ": ", problem));
    return absl::DataLossError(
        absl::StrCat(path, ": ", status.message(), text_in_place(file->file_->bytes())));
  }
  return file;
}

absl::Status SafetensorsFile::parse() {
  const std::span<const char> bytes = file_->bytes();
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kSafetensorsHeaderBytesMax || length > bytes.size() - kLengthBytes) {
    return absl::DataLossError(
        absl::StrCat("the header's length is ", length, " in a file of ", bytes.size(),
                     " bytes; it is no safetensors file, or its download is incomplete"));
  }
  const char* begin = bytes.data() + kLengthBytes;
  auto header = parse_header(begin, begin + length);
  if (!header.ok()) return header.status();
  const uint64_t data_start = kLengthBytes + length;
  for (const auto& [name, value] : header->items()) {
    if (name == "__metadata__") continue;
    try {
      auto entry = parse_entry(value, bytes.size() - data_start);
      if (!entry.ok())
        return absl::DataLossError(absl::StrCat("tensor ", name, ": ", entry.status().message()));
      entry->offset += data_start;
      tensors_.emplace(name, std::move(*entry));
    } catch (const json::exception& e) {
      return absl::DataLossError(absl::StrCat("tensor ", name, ": ", e.what()));
    }
  }
  return check_layout(tensors_, data_start, bytes.size());
}

absl::Status SafetensorsFile::read(const StoredTensor& tensor, std::span<float> out) const {
  return file_->read([&] { widen(file_->bytes().data() + tensor.offset, tensor.stored, out); });
}

}  // namespace muster::trainer
