#include "trainer_core/data/sentencepiece_check.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include <absl/strings/str_cat.h>

#include "trainer_core/data/protobuf_fields.h"
#include "trainer_core/data/utf8.h"

namespace muster::trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "charsmaps are read as they are");

constexpr size_t kUnitBytes = sizeof(uint32_t);
// The children of a unit differ only in the lowest byte of their index.
constexpr size_t kBlockUnits = 256;

uint32_t unit_at(std::string_view units, size_t index) {
  uint32_t unit = 0;
  std::memcpy(&unit, units.data() + index * kUnitBytes, kUnitBytes);
  return unit;
}

template <class... Parts>
absl::Status unusable(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// In NormalizerSpec, field 1 is the name and field 2 the table.
absl::Status check_normalizer(std::string_view spec, const char* name) {
  ProtobufFields fields(spec, spec);
  for (ProtobufField field; fields.next(field);) {
    if (field.number != 2 || !field.has_bytes || field.bytes.empty()) continue;
    if (auto status = check_charsmap(field.bytes); !status.ok())
      return unusable(name, ".precompiled_charsmap ", status.message());
  }
  return absl::OkStatus();
}

// In SentencePiece, field 1 is the text.
absl::Status check_piece(std::string_view piece, size_t id) {
  ProtobufFields fields(piece, piece);
  for (ProtobufField field; fields.next(field);) {
    if (field.number != 1) continue;
    if (field.bytes.find('\0') != std::string_view::npos)
      return unusable("piece ", id, " has a NUL in it");
    if (scan_utf8(field.bytes).invalid_bytes > 0) return unusable("piece ", id, " is no UTF-8");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status check_charsmap(std::string_view charsmap) {
  uint32_t trie_bytes = 0;
  if (charsmap.size() <= sizeof(trie_bytes)) return unusable("has ", charsmap.size(), " bytes");
  std::memcpy(&trie_bytes, charsmap.data(), sizeof(trie_bytes));
  charsmap.remove_prefix(sizeof(trie_bytes));
  const bool is_whole = trie_bytes > 0 && trie_bytes < charsmap.size() &&
                        trie_bytes % (kBlockUnits * kUnitBytes) == 0;
  if (!is_whole) {
    return unusable("has a trie of ", trie_bytes, " bytes and ", charsmap.size(),
                    " bytes for it and the strings behind it");
  }
  const std::string_view units = charsmap.substr(0, trie_bytes);
  const std::string_view strings = charsmap.substr(trie_bytes);
  if (strings.back() != '\0') return unusable("ends in the middle of a string");
  const size_t count = units.size() / kUnitBytes;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t unit = unit_at(units, i);
    // The root (unit 0) is never the value of a leaf.
    const bool is_value = i > 0 && (unit & (uint32_t{1} << 31)) != 0;
    if (is_value) continue;
    const size_t offset = size_t{unit >> 10} << ((unit & (1U << 9)) >> 6);
    const size_t below = i ^ offset;
    if (below >= count) return unusable("has a trie whose unit ", i, " leads out of it");
    if ((unit & (1U << 8)) == 0) continue;
    const size_t value = unit_at(units, below) & 0x7FFF'FFFF;
    if (value >= strings.size())
      return unusable("has a trie whose unit ", i, " has its string at byte ", value, " of ",
                      strings.size());
  }
  return absl::OkStatus();
}

absl::Status check_sentencepiece(std::string_view model) {
  ProtobufFields fields(model, model);
  size_t pieces = 0;
  for (ProtobufField field; fields.next(field);) {
    absl::Status status;
    if (field.number == 1) status = check_piece(field.bytes, pieces++);
    if (field.number == 3) status = check_normalizer(field.bytes, "normalizer_spec");
    if (field.number == 5) status = check_normalizer(field.bytes, "denormalizer_spec");
    if (!status.ok()) return status;
  }
  if (fields.is_broken()) return unusable("is no message from byte ", fields.offset(), " on");
  return absl::OkStatus();
}

}  // namespace muster::trainer
