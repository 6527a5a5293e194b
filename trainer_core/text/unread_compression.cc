#include "trainer_core/text/unread_compression.h"

#include <algorithm>
#include <cstddef>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster::trainer {
namespace {

// Compressions that are not supported. If the magic alone is ambiguous, `later` is compared, too.
struct Unread {
  std::string_view name;
  std::string_view magic;
  std::string_view later = {};  // at offset kLater
};
constexpr size_t kLater = 4;
constexpr Unread kUnread[] = {{"bzip2", "BZh", "\x31\x41\x59\x26\x53\x59"},  // begins a block
                              {"bzip2", "BZh", "\x17\x72\x45\x38\x50\x90"},  // ends the stream
                              {"xz", "\xFD\x37\x7A\x58\x5A"},
                              {"zip", "PK\x03\x04"},
                              {"7z", "7z\xBC\xAF\x27\x1C"},
                              {"lz4", "\x04\x22\x4D\x18"},
                              {"lz4", "\x02\x21\x4C\x18"},  // its legacy frames
                              {"lzip", "LZIP\x01"},
                              {"lzma", std::string_view("\x5D\x00\x00\x80\x00", 5)},
                              {"lzop", std::string_view("\x89LZO\x00\x0D\x0A", 7)},
                              {"snappy", std::string_view("\xFF\x06\x00\x00sNaPpY", 10)},
                              {"compress (.Z)", "\x1F\x9D"},
                              {"rar", "Rar!\x1A\x07"},
                              {"Unix archive", "!<arch>\n"},
                              {"an early zstd (before 0.8)", "\x1E\xB5\x2F\xFD"},
                              {"an early zstd (before 0.8)", "\x22\xB5\x2F\xFD"},
                              {"an early zstd (before 0.8)", "\x23\xB5\x2F\xFD"},
                              {"an early zstd (before 0.8)", "\x24\xB5\x2F\xFD"},
                              {"an early zstd (before 0.8)", "\x25\xB5\x2F\xFD"},
                              {"an early zstd (before 0.8)", "\x26\xB5\x2F\xFD"},
                              {"an early zstd (before 0.8)", "\x27\xB5\x2F\xFD"}};

// Formats that are no text, although their names may state one.
struct OtherFormat {
  std::string_view magic;
  std::string_view what;
  std::string_view remedy;
};
constexpr OtherFormat kOtherFormats[] = {
    {"ARROW1", "an Arrow file",
     "datasets.Dataset.from_file(FILE).to_json(NEW) makes JSON lines of it"},
    {std::string_view("\xFF\xFF\xFF\xFF\x10\0\0\0", 8), "an Arrow stream",
     "datasets.Dataset.from_file(FILE).to_json(NEW) makes JSON lines of it"},
    {"\x93NUMPY", "a NumPy array", "give the text that its tokens were made of"},
    {"%PDF-", "a PDF document", "pdftotext FILE extracts its text"},
    {"SQLite format 3", "an SQLite database", "export its text as JSON lines"},
    {"\x89HDF\r\n", "an HDF5 file", "export its text as JSON lines"},
    {"\x80\x04\x95", "a pickle of Python", "export its text as JSON lines"}};

// zlib's header has no magic, but a multiple of 31, and text has no byte as its second one (RFC
// 1950, 2.2). The first block's type and a control character behind it rule out most texts.
bool is_zlib(std::string_view begins) {
  constexpr size_t kZlibHeaderBytes = 2;
  if (begins.size() <= kZlibHeaderBytes || begins[0] != '\x78') return false;
  const auto flags = static_cast<uint8_t>(begins[1]);
  return flags == 0x01 || flags == 0x5E ? begins.find('\0') != std::string_view::npos
                                        : flags == 0x9C || flags == 0xDA;
}

}  // namespace

std::string_view unread_compression(std::string_view begins) {
  for (const Unread& kind : kUnread) {
    if (begins.starts_with(kind.magic) &&
        begins.substr(std::min(kLater, begins.size()), kind.later.size()) == kind.later)
      return kind.name;
  }
  return is_zlib(begins) ? "zlib" : "";
}

absl::Status check_decodable(const std::string& path, std::string_view begins) {
  if (const std::string_view name = unread_compression(begins); !name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is compressed: ", av(name), " is not read; recompress it with zstd or gzip"));
  }
  for (const OtherFormat& format : kOtherFormats) {
    if (begins.starts_with(format.magic))
      return absl::InvalidArgumentError(
          absl::StrCat(path, " is ", av(format.what), ", which is not read; ", av(format.remedy)));
  }
  constexpr size_t kTarMagic = 257;
  if (begins.size() > kTarMagic && begins.substr(kTarMagic).starts_with("ustar")) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is a tar archive, which is not read; unpack it first: tar -xf FILE"));
  }
  return absl::OkStatus();
}

}  // namespace muster::trainer
