#include "trainer_core/data/text_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <absl/cleanup/cleanup.h>
#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

#include "common/errno_status.h"

namespace muster::trainer {
namespace {

// More invalid bytes than this share of the file, and it is not text.
constexpr double kInvalidShareMax = 0.01;

// Length of the well-formed UTF-8 sequence at the start of `text`; 0 when there is none (RFC 3629).
size_t utf8_sequence_length(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto continues = [&](size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (!continues(1) || !continues(2)) return 0;
    const bool overlong = first == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = first == 0xED && byte(1) > 0x9F;
    return overlong || surrogate ? 0 : 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    const bool overlong = first == 0xF0 && byte(1) < 0x90;
    const bool too_large = first == 0xF4 && byte(1) > 0x8F;
    return overlong || too_large ? 0 : 4;
  }
  return 0;
}

bool eight_ascii_bytes(const char* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return (word & 0x8080808080808080ULL) == 0;
}

struct Utf8Report {
  uint64_t invalid_bytes = 0;
  size_t first_invalid = 0;
};

Utf8Report scan_utf8(std::string_view text) {
  Utf8Report report;
  size_t i = 0;
  while (i < text.size()) {
    if (i + 8 <= text.size() && eight_ascii_bytes(text.data() + i)) {
      i += 8;
      continue;
    }
    const size_t length = utf8_sequence_length(text.substr(i, 4));
    if (length == 0 && report.invalid_bytes++ == 0) report.first_invalid = i;
    i += std::max<size_t>(length, 1);
  }
  return report;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextFile>> TextFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno_status(errno, absl::StrCat("cannot open ", path));
  absl::Cleanup close_file = [fd] { close(fd); };
  struct stat info {};
  if (fstat(fd, &info) != 0) return errno_status(errno, absl::StrCat("cannot examine ", path));
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a regular file; give a text file"));
  }
  const auto bytes = static_cast<size_t>(info.st_size);
  if (bytes == 0)
    return absl::InvalidArgumentError(absl::StrCat(path, " is empty: there is no text in it"));
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (memory == MAP_FAILED) return errno_status(errno, absl::StrCat("cannot map ", path));
  return absl::WrapUnique(new TextFile(static_cast<const char*>(memory), bytes));
}

TextFile::~TextFile() { munmap(const_cast<char*>(data_), bytes_); }

absl::Status check_is_text(std::string_view text, const std::string& path) {
  if (const void* nul = std::memchr(text.data(), 0, text.size()); nul != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is a binary file, not text: NUL byte at offset ",
                     static_cast<const char*>(nul) - text.data()));
  }
  const Utf8Report report = scan_utf8(text);
  if (static_cast<double>(report.invalid_bytes) >
      kInvalidShareMax * static_cast<double>(text.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not UTF-8 text: ", report.invalid_bytes, " of ", text.size(),
                     " bytes are invalid, the first at offset ", report.first_invalid,
                     "; convert it with iconv first"));
  }
  const bool blank = std::all_of(text.begin(), text.end(), [](char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == '\v' || c == '\f';
  });
  if (blank) return absl::InvalidArgumentError(absl::StrCat(path, " has nothing but blanks in it"));
  return absl::OkStatus();
}

}  // namespace muster::trainer
