#include "trainer_core/checkpoint/foreign/stored_zip.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster::trainer {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50, kCentralHeader = 0x02014b50, kEnd = 0x06054b50,
                   kZip64End = 0x06064b50, kZip64Locator = 0x07064b50;
constexpr uint64_t kLocalHeaderBytes = 30, kCentralHeaderBytes = 46, kEndBytes = 22,
                   kZip64EndBytes = 56, kZip64LocatorBytes = 20;
constexpr uint64_t kCommentBytesMax = 0xFFFF;
constexpr uint16_t kZip64Field = 1;
constexpr uint16_t kEncrypted = 1;         // a flag
constexpr uint32_t kInZip64 = 0xFFFFFFFF;  // replaces a number that does not fit

// Numbers of the file; callers must have checked that the bytes exist.
class Bytes {
 public:
  explicit Bytes(std::span<const char> bytes) : bytes_(bytes) {}
  uint64_t size() const { return bytes_.size(); }
  bool has(uint64_t at, uint64_t count) const { return at <= size() && count <= size() - at; }
  uint16_t u16(uint64_t at) const { return number<uint16_t>(at); }
  uint32_t u32(uint64_t at) const { return number<uint32_t>(at); }
  uint64_t u64(uint64_t at) const { return number<uint64_t>(at); }
  bool is(uint64_t at, uint32_t signature) const { return has(at, 4) && u32(at) == signature; }
  std::string text(uint64_t at, uint64_t count) const {
    return {bytes_.data() + at, static_cast<size_t>(count)};
  }

 private:
  template <class Number>
  Number number(uint64_t at) const {
    Number value = 0;
    std::memcpy(&value, bytes_.data() + at, sizeof(value));
    return value;
  }

  std::span<const char> bytes_;
};

absl::Status zip_damage(uint64_t at, std::string_view what) {
  return absl::DataLossError(absl::StrCat("byte ", at, ": ", av(what)));
}

struct Directory {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t entries = 0;
};

// Finds the end record, which is the last record of the file and is followed only by a comment.
absl::StatusOr<uint64_t> find_end_record(const Bytes& file) {
  const uint64_t searched = std::min(file.size(), kEndBytes + kCommentBytesMax);
  for (uint64_t back = kEndBytes; back <= searched; ++back) {
    if (file.is(file.size() - back, kEnd)) return file.size() - back;
  }
  if (file.is(0, kLocalHeader))
    return zip_damage(file.size(),
                      "the file is truncated: it begins as a zip archive does, and has no end");
  return absl::InvalidArgumentError("byte 0: this is no zip archive");
}

absl::StatusOr<Directory> find_directory(const Bytes& file) {
  const auto end = find_end_record(file);
  if (!end.ok()) return end.status();
  Directory directory{file.u32(*end + 16), file.u32(*end + 12), file.u16(*end + 10)};
  if (*end >= kZip64LocatorBytes && file.is(*end - kZip64LocatorBytes, kZip64Locator)) {
    const uint64_t locator = *end - kZip64LocatorBytes;
    const uint64_t at = file.u64(locator + 8);
    if (!file.has(at, kZip64EndBytes) || !file.is(at, kZip64End))
      return zip_damage(locator, "the zip64 end is not where its locator points");
    directory = {file.u64(at + 48), file.u64(at + 40), file.u64(at + 32)};
  }
  if (!file.has(directory.offset, directory.bytes))
    return zip_damage(*end, "the central directory does not lie within the file");
  return directory;
}

struct CentralEntry {
  std::string name;
  uint64_t header = 0;  // offset of the local header
  uint64_t bytes = 0;
  uint64_t next = 0;
};

// Reads the fields that exceed 32 bits, in this order and only those, from the extra fields in [at,
// end).
absl::Status read_zip64(const Bytes& file, uint64_t at, uint64_t end,
                        std::initializer_list<uint64_t*> numbers) {
  const auto is_missing = [](const uint64_t* number) { return *number == kInZip64; };
  if (std::none_of(numbers.begin(), numbers.end(), is_missing)) return absl::OkStatus();
  const uint64_t extra = at;
  while (at + 4 <= end) {
    const uint64_t field_end = at + 4 + file.u16(at + 2);
    if (field_end > end) break;
    if (file.u16(at) == kZip64Field) {
      at += 4;
      for (uint64_t* number : numbers) {
        if (!is_missing(number)) continue;
        if (at + 8 > field_end) return zip_damage(at, "the zip64 field is too short");
        *number = file.u64(at);
        at += 8;
      }
      return absl::OkStatus();
    }
    at = field_end;
  }
  return zip_damage(extra, "an entry refers to sizes in a zip64 field, and there is none");
}

absl::StatusOr<CentralEntry> read_central(const Bytes& file, uint64_t at, uint64_t end) {
  if (at + kCentralHeaderBytes > end || !file.is(at, kCentralHeader))
    return zip_damage(at, "there is no entry of the central directory");
  CentralEntry entry;
  const uint64_t name = at + kCentralHeaderBytes;
  const uint64_t extra = name + file.u16(at + 28);
  const uint64_t comment = extra + file.u16(at + 30);
  entry.next = comment + file.u16(at + 32);
  if (entry.next > end) return zip_damage(at, "the entry's name does not lie within the directory");
  entry.name = file.text(name, extra - name);
  uint64_t packed = file.u32(at + 20);
  entry.bytes = file.u32(at + 24);
  entry.header = file.u32(at + 42);
  const auto refuse = [&](const char* how) {
    return absl::InvalidArgumentError(absl::StrCat(
        "byte ", at, ": entry ", entry.name, " is ", how,
        "; only entries that are stored as they are can be read, which is how torch.save writes"));
  };
  if ((file.u16(at + 8) & kEncrypted) != 0) return refuse("encrypted");
  if (file.u16(at + 10) != 0) return refuse("compressed");
  if (auto status = read_zip64(file, extra, comment, {&entry.bytes, &packed, &entry.header});
      !status.ok())
    return status;
  if (packed != entry.bytes) return zip_damage(at, "a stored entry has two sizes that differ");
  return entry;
}

// Locates the bytes of an entry. The name and the extra fields of the local header have lengths of
// their own.
absl::StatusOr<StoredZip::Entry> locate(const Bytes& file, const CentralEntry& entry) {
  if (!file.has(entry.header, kLocalHeaderBytes) || !file.is(entry.header, kLocalHeader))
    return zip_damage(entry.header, absl::StrCat("there is no header of entry ", entry.name));
  const uint64_t begin =
      entry.header + kLocalHeaderBytes + file.u16(entry.header + 26) + file.u16(entry.header + 28);
  if (!file.has(begin, entry.bytes)) {
    return zip_damage(begin, absl::StrCat("entry ", entry.name, " states a size of ", entry.bytes,
                                          " bytes, and the file has ", file.size(), " in all"));
  }
  return StoredZip::Entry{begin, entry.bytes};
}

absl::Status read_directory(const Bytes& file, std::map<std::string, StoredZip::Entry>& entries) {
  const auto directory = find_directory(file);
  if (!directory.ok()) return directory.status();
  uint64_t at = directory->offset;
  const uint64_t end = at + directory->bytes;
  uint64_t count = 0;
  for (; at < end; ++count) {
    const auto entry = read_central(file, at, end);
    if (!entry.ok()) return entry.status();
    const auto location = locate(file, *entry);
    if (!location.ok()) return location.status();
    if (!entries.emplace(entry->name, *location).second)
      return zip_damage(at, absl::StrCat("there are two entries ", entry->name));
    at = entry->next;
  }
  if (count != directory->entries) {
    return zip_damage(directory->offset,
                      absl::StrCat("the central directory has ", count,
                                   " entries, and its end states ", directory->entries));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoredZip>> StoredZip::open(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file.ok()) return file.status();
  auto zip = absl::WrapUnique(new StoredZip(*std::move(file)));
  const absl::Status status = read_directory(Bytes(zip->file_->bytes()), zip->entries_);
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  return zip;
}

}  // namespace muster::trainer
