#include "trainer_core/text/encode.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "trainer_core/data/text_file.h"

namespace muster::trainer {
namespace {

void add_examples(std::vector<std::string>& to, const std::vector<std::string>& from) {
  for (const std::string& example : from) {
    if (to.size() < kExamplesMax) to.push_back(example);
  }
}

}  // namespace

void DocumentCounts::add(const DocumentCounts& more) {
  text_bytes += more.text_bytes;
  repaired += more.repaired;
  skipped += more.skipped;
  cut += more.cut;
  empty += more.empty;
  marks += more.marks;
  add_examples(cut_examples, more.cut_examples);
  add_examples(empty_examples, more.empty_examples);
  add_examples(marks_examples, more.marks_examples);
  add_examples(repaired_examples, more.repaired_examples);
  add_examples(skipped_examples, more.skipped_examples);
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
      texts_(options.read.field) {}

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

absl::Status ChunkEncoder::add(const Chunk& chunk, const Record& record, EncodedChunk& out) {
  const InputFile& file = files_[chunk.file];
  const auto document = texts_.text_of(chunk, record, file.format);
  if (!document.ok()) return add_flawed(document.status(), location_of(file, record), out);
  if (document->is_repaired()) {
    if (options_.bad_documents != BadDocuments::kRepair) {
      return add_flawed(absl::InvalidArgumentError(av(document->repair)), location_of(file, record),
                        out);
    }
    ++out.counts.repaired;
    add_examples(out.counts.repaired_examples, {location_of(file, record)});
  }
  const size_t before = out.ids.size();
  if (auto status = encoder_->append(document->text, out.ids); !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat(location_of(file, record), ": ", status.message()));
  }
  // Without text there is no document.
  const bool has_text = document->text.find_first_not_of(" \t\r\n\v\f") != std::string_view::npos;
  if (!has_text) out.ids.resize(before);
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
