#include "trainer_core/text/encode.h"

#include <algorithm>
#include <iterator>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/data/text_file.h"
#include "trainer_core/data/utf8.h"
#include "trainer_core/text/dpo_sample.h"

namespace muster::trainer {
namespace {

void add_examples(std::vector<std::string>& to, const std::vector<std::string>& from) {
  for (const std::string& example : from) {
    if (to.size() < kExamplesMax) to.push_back(example);
  }
}

// Characters that are not seen, beside those of ASCII: Unicode's White_Space, and the zero-width
// ones U+200B to U+200D, U+2060 and U+FEFF.
bool is_wide_blank(std::string_view character) {
  static constexpr std::string_view kBlanks[] = {
      "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\xA8", "\xE2\x80\xA9",
      "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE2\x81\xA0", "\xE3\x80\x80", "\xEF\xBB\xBF"};
  // U+2000 to U+200D.
  const bool is_space = character.size() == 3 && character.starts_with("\xE2\x80") &&
                        static_cast<uint8_t>(character[2]) <= 0x8D;
  return is_space || std::ranges::find(kBlanks, character) != std::end(kBlanks);
}

// Returns whether a text has a character that is seen. Requires well-formed UTF-8.
bool has_visible(std::string_view text) {
  for (;;) {
    const size_t at = text.find_first_not_of(" \t\r\n\v\f\x1C\x1D\x1E\x1F");
    if (at == std::string_view::npos) return false;
    text.remove_prefix(at);
    const std::string_view character = text.substr(0, next_utf8(text).bytes);
    if (!is_wide_blank(character)) return true;
    text.remove_prefix(character.size());
  }
}

}  // namespace

void DocumentCounts::add(const DocumentCounts& more) {
  text_bytes += more.text_bytes;
  for (const DocumentKind& kind : kDocumentKinds) {
    this->*kind.count += more.*kind.count;
    add_examples(this->*kind.examples, more.*kind.examples);
  }
}

void InputCounts::add(const InputCounts& more) {
  documents += more.documents;
  tokens += more.tokens;
  file_bytes = std::max(file_bytes, more.file_bytes);
  counts.add(more.counts);
}

InputCounts EncodedChunk::input() const {
  return {documents.size(), ids.size(), file_position, counts};
}

ChunkEncoder::ChunkEncoder(const Tokenizer& tokenizer, const std::vector<InputFile>& files,
                           const EncodeOptions& options)
    : tokenizer_(tokenizer),
      files_(files),
      options_(options),
      encoder_(tokenizer.encoder()),
      texts_(options.read.field) {
  if (options.sft != nullptr) samples_.emplace(tokenizer, *options.sft, options.add_eos);
}

EncodedChunk ChunkEncoder::encode(const Chunk& chunk) {
  EncodedChunk out;
  out.end = chunk.end;
  out.file_position = chunk.file_position;
  const InputFile& file = files_[chunk.file];
  if (chunk.is_first && file.format == InputFormat::kText && !chunk.records.empty()) {
    TextCheck check;
    for (const Record& record : chunk.records) check.add(chunk.text(record), record.offset);
    out.status = check.status(file.path);
  }
  for (const Record& record : chunk.records) {
    if (!out.status.ok()) break;
    if (record.marks > 0) {
      out.counts.marks += record.marks;
      add_examples(out.counts.marks_examples, {location_of(file, record)});
    }
    out.status = add(chunk, record, out);
  }
  return out;
}

absl::Status ChunkEncoder::add_sample(const Chunk& chunk, const Record& record, EncodedChunk& out) {
  const InputFile& file = files_[chunk.file];
  const std::string place = location_of(file, record);
  if (file.format != InputFormat::kJsonLines) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path,
                     " is not JSON lines, which samples for fine-tuning are; --format jsonl reads "
                     "it as such"));
  }
  if (record.flaw != Flaw::kNone) return add_flawed(flaw_status(record.flaw, ""), place, out);
  const size_t before = out.ids.size();
  const auto bytes = append_sample(chunk.text(record), out);
  if (!bytes.ok()) return add_flawed(bytes.status(), place, out);
  out.documents.push_back(static_cast<uint32_t>(out.ids.size() - before));
  out.counts.text_bytes += *bytes;
  return absl::OkStatus();
}

absl::StatusOr<size_t> ChunkEncoder::append_sample(std::string_view json, EncodedChunk& out) {
  if (options_.pairs) {
    const auto pair = dpo_texts(json, *options_.sft);
    if (!pair.ok()) return pair.status();
    if (auto status = append_pair(*samples_, *pair, out.ids, out.weights); !status.ok())
      return status;
    return pair->chosen.text.size() + pair->rejected.text.size();
  }
  const auto text = sft_text(json, *options_.sft);
  if (!text.ok()) return text.status();
  if (auto status = samples_->append(*text, out.ids, out.weights); !status.ok()) return status;
  return text->text.size();
}

absl::Status ChunkEncoder::add(const Chunk& chunk, const Record& record, EncodedChunk& out) {
  if (samples_) return add_sample(chunk, record, out);
  const InputFile& file = files_[chunk.file];
  const auto document = texts_.text_of(chunk, record, file.format);
  if (!document.ok()) return add_flawed(document.status(), location_of(file, record), out);
  if (document->is_repaired()) {
    if (options_.bad_documents != BadDocuments::kRepair) {
      return add_flawed(absl::InvalidArgumentError(av(document->flaw())), location_of(file, record),
                        out);
    }
    if (document->had_invalid_utf8) {
      ++out.counts.repaired;
      add_examples(out.counts.repaired_examples, {location_of(file, record)});
    }
    if (document->had_nul) {
      ++out.counts.nuls;
      add_examples(out.counts.nuls_examples, {location_of(file, record)});
    }
  }
  const size_t before = out.ids.size();
  if (auto status = encoder_->append(document->text, out.ids); !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat(location_of(file, record), ": ", status.message()));
  }
  // Without text there is no document.
  if (!has_visible(document->text)) out.ids.resize(before);
  if (out.ids.size() == before) {
    ++out.counts.empty;
    add_examples(out.counts.empty_examples, {location_of(file, record)});
    return absl::OkStatus();
  }
  if (options_.add_eos) out.ids.push_back(tokenizer_.eos_id());
  out.documents.push_back(static_cast<uint32_t>(out.ids.size() - before));
  out.counts.text_bytes += document->text.size();
  if (record.is_cut) {
    ++out.counts.cut;
    add_examples(out.counts.cut_examples, {location_of(file, record)});
  }
  return absl::OkStatus();
}

absl::Status ChunkEncoder::add_flawed(const absl::Status& flaw, const std::string& place,
                                      EncodedChunk& out) {
  const std::string what = absl::StrCat(place, " ", flaw.message());
  if (options_.bad_documents != BadDocuments::kSkip) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, "; --bad-documents skip leaves such documents out"));
  }
  ++out.counts.skipped;
  add_examples(out.counts.skipped_examples, {what});
  return absl::OkStatus();
}

}  // namespace muster::trainer
