#include "trainer_core/text/line_chunks.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/file_kind.h"
#include "trainer_core/data/utf8.h"
#include "trainer_core/text/unread_compression.h"

namespace muster::trainer {
namespace {

constexpr std::string_view kBlanks = " \t\r\v\f";
constexpr std::string_view kBlanksAndEnds = " \t\r\v\f\n";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
// The beginning of a file that shows whether it has JSON lines.
constexpr size_t kBeginningBytes = 4096;
// The maximum distance between a cut and the blank before it. A longer word is split.
constexpr size_t kCutSearchBytes = 4096;

bool is_blank(std::string_view line) {
  return line.find_first_not_of(kBlanks) == std::string_view::npos;
}

// Returns the position at which a text that is too long is cut.
size_t cut_of(std::string_view text) {
  const size_t blank = text.find_last_of(kBlanks);
  if (blank != std::string_view::npos && blank > 0 && text.size() - blank <= kCutSearchBytes)
    return blank;
  return utf8_boundary(text, text.size() - 1);
}

// Refuses the line ends of old Macs, with which a file is one line. `begins` is the beginning of a
// file.
absl::Status check_line_ends(const std::string& path, std::string_view begins) {
  if (begins.find('\n') != std::string_view::npos) return absl::OkStatus();
  // The last byte may be half of a CRLF. A long line may have a few for other reasons.
  const std::string_view inner = begins.substr(0, std::max<size_t>(begins.size(), 1) - 1);
  const auto count = static_cast<size_t>(std::ranges::count(inner, '\r'));
  if (count == 0 || count < begins.size() / kBeginningBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path,
                   " has lines that end in CR alone (\\r), as on old Macs; tr '\\r' '\\n' < FILE > "
                   "NEW makes lines of them"));
}

// Returns the encoding of a text without a byte order mark whose other bytes are NUL: of Latin
// characters in units of two or four bytes; "" for other texts.
std::string_view wide_encoding(std::string_view begins) {
  constexpr size_t kUnit = 4;
  constexpr size_t kUnitsMin = 4;
  const size_t units = begins.size() / kUnit;
  if (units < kUnitsMin) return "";
  size_t nuls[kUnit] = {};
  for (size_t i = 0; i < units * kUnit; ++i) nuls[i % kUnit] += begins[i] == '\0' ? 1 : 0;
  const auto most = [&](size_t at) { return nuls[at] * 2 >= units; };
  const auto none = [&](size_t at) { return nuls[at] == 0; };
  if (none(0) && most(1) && most(2) && most(3)) return "UTF-32LE";
  if (most(0) && most(1) && most(2) && none(3)) return "UTF-32BE";
  if (none(0) && most(1) && none(2) && most(3)) return "UTF-16LE";
  if (most(0) && none(1) && most(2) && none(3)) return "UTF-16BE";
  return "";
}

// Refuses a JSON value over several lines, of which no line is an object.
absl::Status check_json_lines(const std::string& path, std::string_view begins) {
  size_t first = 0;
  while (first < begins.size()) {
    if (begins.substr(first).starts_with(kByteOrderMark)) {
      first += kByteOrderMark.size();
    } else if (kBlanksAndEnds.find(begins[first]) != std::string_view::npos) {
      ++first;
    } else {
      break;
    }
  }
  begins.remove_prefix(first);
  if (begins.starts_with('[')) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        " is a JSON array, not JSON lines; jq -c '.[]' FILE > NEW.jsonl makes a line of each "
        "of its elements"));
  }
  const size_t end = begins.find('\n');
  if (end == std::string_view::npos || !begins.starts_with('{') ||
      !is_blank(begins.substr(1, end - 1)))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path,
                   " has JSON over several lines, not JSON lines; jq -c . FILE > NEW.jsonl "
                   "makes one line of each object"));
}

}  // namespace

absl::Status pass_beginning(const InputFile& file, ByteWindow& bytes) {
  if (bytes.offset() > 0) return absl::OkStatus();
  const auto begins = bytes.peek(4);
  if (!begins.ok()) return begins.status();
  if (begins->starts_with(kByteOrderMark)) bytes.use(kByteOrderMark.size());
  if (begins->starts_with("\xFF\xFE") || begins->starts_with("\xFE\xFF")) {
    const bool is_wide = begins->starts_with(std::string_view("\xFF\xFE\0\0", 4));
    const char* const encoding = is_wide ? "UTF-32" : "UTF-16";
    return absl::InvalidArgumentError(absl::StrCat(
        file.path, " is ", encoding, " (it begins with its byte order mark), not UTF-8; ",
        "convert it with iconv -f ", encoding, " -t UTF-8 first"));
  }
  const auto text = bytes.peek(kBeginningBytes);
  if (!text.ok()) return text.status();
  // The same kinds inside gzip or zstd, such as a .tar.gz, or a pointer that was compressed.
  if (auto status = check_no_pointer(file.path, *text, text->size()); !status.ok()) return status;
  if (auto status = check_decodable(file.path, *text); !status.ok()) return status;
  if (text->starts_with("\x1F\x8B") || text->starts_with("\x28\xB5\x2F\xFD")) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path, " is compressed twice; decompress it once: gzip -dc or zstd -dc FILE > NEW"));
  }
  if (const std::string_view encoding = wide_encoding(*text); !encoding.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path, " is ", av(encoding),
        " (without a byte order mark: NUL bytes stand between its characters), not UTF-8; convert "
        "it with iconv -f ",
        av(encoding), " -t UTF-8 first"));
  }
  if (auto status = check_line_ends(file.path, *text); !status.ok()) return status;
  if (file.format != InputFormat::kJsonLines) return absl::OkStatus();
  return check_json_lines(file.path, *text);
}

LineChunks::LineChunks(const InputFile& file, DocumentUnit documents, ByteWindow bytes,
                       const Position& from)
    : kind_(file.format == InputFormat::kJsonLines   ? Kind::kJsonLines
            : documents == DocumentUnit::kLines      ? Kind::kLines
            : documents == DocumentUnit::kParagraphs ? Kind::kParagraphs
                                                     : Kind::kFiles),
      bytes_(std::move(bytes)),
      line_(from.record) {}

absl::StatusOr<bool> LineChunks::next(Chunk& chunk) {
  const uint64_t begin = bytes_.offset();
  in_document_ = false;
  while (bytes_.offset() - begin < kChunkBytes || in_document_) {
    Line line;
    const auto more = peek_line(line);
    if (!more.ok()) return more.status();
    if (!*more) break;
    if (is_full(line, chunk)) {
      // The line begins a new document, possibly in the next chunk.
      chunk.records.back().is_cut = true;
      in_document_ = false;
    } else if (kind_ == Kind::kParagraphs || kind_ == Kind::kFiles) {
      add_to_document(line, chunk);
    } else if (auto status = add_record(line, chunk); !status.ok()) {
      return status;
    }
  }
  chunk.end = {0, bytes_.offset(), line_};
  chunk.file_position = bytes_.file_position();
  return bytes_.offset() > begin;
}

absl::StatusOr<bool> LineChunks::peek_line(Line& line) {
  size_t seen = 0;
  for (;;) {
    const auto held = bytes_.peek(seen + 1);
    if (!held.ok()) return held.status();
    const std::string_view text = held->substr(0, kDocumentBytesMax);
    if (text.empty()) return false;
    const size_t newline = text.find('\n', seen);
    if (newline != std::string_view::npos) {
      line = {text.substr(0, newline), newline + 1, false};
    } else if (text.size() == kDocumentBytesMax) {
      const size_t cut = cut_of(text);
      line = {text.substr(0, cut), cut, true};
    } else if (text.size() == seen) {
      line = {text, text.size(), false};
    } else {
      seen = text.size();
      continue;
    }
    if (!line.is_cut && line.text.ends_with('\r')) line.text.remove_suffix(1);
    for (; line.text.starts_with(kByteOrderMark); ++line.marks)
      line.text.remove_prefix(kByteOrderMark.size());
    return true;
  }
}

void LineChunks::take(const Line& line) {
  bytes_.use(line.bytes);
  if (!line.is_cut) ++line_;
}

absl::Status LineChunks::skip_rest_of_line() {
  Line rest;
  rest.is_cut = true;
  while (rest.is_cut) {
    const auto more = peek_line(rest);
    if (!more.ok()) return more.status();
    if (!*more) break;
    take(rest);
  }
  return absl::OkStatus();
}

absl::Status LineChunks::add_record(const Line& line, Chunk& chunk) {
  Record record{chunk.bytes.size(), line.text.size(), bytes_.offset(), line_};
  take(line);
  if (is_blank(line.text)) return absl::OkStatus();
  record.marks = line.marks;
  if (kind_ == Kind::kJsonLines && line.is_cut) {
    record.size = 0;
    record.flaw = Flaw::kTooLong;
    chunk.records.push_back(record);
    return skip_rest_of_line();
  }
  record.is_cut = line.is_cut;
  chunk.bytes += line.text;
  chunk.records.push_back(record);
  return absl::OkStatus();
}

void LineChunks::add_to_document(const Line& line, Chunk& chunk) {
  const Record begins{chunk.bytes.size(), 0, bytes_.offset(), line_};
  take(line);
  if (is_blank(line.text) && (kind_ == Kind::kParagraphs || !in_document_)) {
    in_document_ = false;
    return;
  }
  if (in_document_) {
    chunk.bytes += '\n';
  } else {
    chunk.records.push_back(begins);
  }
  Record& record = chunk.records.back();
  record.marks += line.marks;
  chunk.bytes += line.text;
  record.size = chunk.bytes.size() - record.begin;
  record.is_cut = line.is_cut;
  // The rest of a line that was cut is a separate document.
  in_document_ = !line.is_cut;
}

bool LineChunks::is_full(const Line& line, const Chunk& chunk) const {
  return in_document_ && chunk.records.back().size + 1 + line.text.size() > kDocumentBytesMax;
}

}  // namespace muster::trainer
