#include "trainer_core/text/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "common/text/absl_view.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/data/token_index.h"

namespace muster::trainer {
namespace {

using nlohmann::json;

constexpr char kFormat[] = "muster-tokenize";
constexpr int kVersion = 3;

std::string path_in(const std::string& folder) { return absl::StrCat(folder, "/", kJournalFile); }

// File names are bytes, not always UTF-8: each byte is stored as the code point of its value.
std::string latin1_to_utf8(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte >= 0x80) text += static_cast<char>(0xC0 | (byte >> 6));
    text += static_cast<char>(byte < 0x80 ? byte : 0x80 | (byte & 0x3F));
  }
  return text;
}

std::string utf8_to_latin1(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const bool is_pair = byte >= 0x80 && i + 1 < text.size();
    bytes += is_pair ? static_cast<char>((byte << 6) | (text[++i] & 0x3F)) : text[i];
  }
  return bytes;
}

json names_of(const std::vector<std::string>& names) {
  json list = json::array();
  for (const std::string& name : names) list.push_back(latin1_to_utf8(name));
  return list;
}

std::vector<std::string> names_from(const json& list) {
  std::vector<std::string> names;
  for (const json& name : list) names.push_back(utf8_to_latin1(name.get<std::string>()));
  return names;
}

json head_json(const Journal::Content& content) {
  json inputs = json::array();
  for (const InputFile& file : content.run.inputs) {
    inputs.push_back({latin1_to_utf8(file.path), name_of(kInputFormatNames, file.format),
                      file.bytes, file.modified_ns});
  }
  json settings = json::object();
  for (const auto& [name, value] : content.run.settings) settings[name] = latin1_to_utf8(value);
  return {{"format", kFormat},
          {"version", kVersion},
          {"generation", content.generation},
          {"settings", std::move(settings)},
          {"inputs", std::move(inputs)}};
}

// Parses the first line. Throws the exceptions of the JSON library, and std::invalid_argument.
Journal::Content head_from(const json& head) {
  if (head.at("format") != kFormat || head.at("version") != kVersion)
    throw std::invalid_argument("another format");
  Journal::Content content;
  content.generation = whole_number<uint64_t>(head.at("generation"));
  for (const auto& [name, value] : head.at("settings").items())
    content.run.settings[name] = utf8_to_latin1(value.get<std::string>());
  for (const json& file : head.at("inputs")) {
    const auto format = value_named<InputFormat>(kInputFormatNames, file.at(1).get<std::string>());
    if (!format) throw std::invalid_argument("no format of ours");
    content.run.inputs.push_back({utf8_to_latin1(file.at(0).get<std::string>()), *format,
                                  whole_number<uint64_t>(file.at(2)),
                                  whole_number<int64_t>(file.at(3))});
  }
  return content;
}

// Numbers first: most inputs have no examples.
json input_json(size_t file, const InputCounts& input) {
  const DocumentCounts& counts = input.counts;
  json entry = {file, input.documents, input.tokens, input.file_bytes, counts.text_bytes};
  json examples = json::array();
  uint64_t sum = 0;
  for (const DocumentKind& kind : kDocumentKinds) {
    entry.push_back(counts.*kind.count);
    sum += counts.*kind.count;
    examples.push_back(names_of(counts.*kind.examples));
  }
  if (sum > 0) entry.push_back(std::move(examples));
  return entry;
}

InputCounts input_from(const json& entry) {
  InputCounts input;
  DocumentCounts& counts = input.counts;
  size_t at = 1;
  for (uint64_t* number : {&input.documents, &input.tokens, &input.file_bytes, &counts.text_bytes})
    *number = whole_number<uint64_t>(entry.at(at++));
  for (const DocumentKind& kind : kDocumentKinds)
    counts.*kind.count = whole_number<uint64_t>(entry.at(at++));
  if (entry.size() <= at) return input;
  size_t list = 0;
  for (const DocumentKind& kind : kDocumentKinds)
    counts.*kind.examples = names_from(entry.at(at).at(list++));
  return input;
}

std::string examples_key(const DocumentKind& kind) { return absl::StrCat(kind.name, "_examples"); }

json shard_json(const FinishedShard& shard) {
  json inputs = json::array();
  for (const auto& [file, input] : shard.inputs) inputs.push_back(input_json(file, input));
  json line = {{"shard", shard.file},
               {"tokens", shard.header.token_count},
               {"documents", shard.header.document_count},
               {"tokens_crc32", shard.header.tokens_crc32},
               {"documents_crc32", shard.header.documents_crc32},
               {"end", {shard.end.file, shard.end.offset, shard.end.record}},
               {"file_position", shard.file_position},
               {"text_bytes", shard.counts.text_bytes},
               {"inputs", std::move(inputs)}};
  for (const DocumentKind& kind : kDocumentKinds) {
    line[kind.name] = shard.counts.*kind.count;
    line[examples_key(kind)] = names_of(shard.counts.*kind.examples);
  }
  return line;
}

FinishedShard shard_from(const json& line) {
  FinishedShard shard;
  shard.file = line.at("shard").get<std::string>();
  if (!shard_generation(shard.file)) throw std::invalid_argument("no shard's name");
  shard.header.token_count = whole_number<uint64_t>(line.at("tokens"));
  shard.header.document_count = whole_number<uint64_t>(line.at("documents"));
  shard.header.tokens_crc32 = whole_number<uint32_t>(line.at("tokens_crc32"));
  shard.header.documents_crc32 = whole_number<uint32_t>(line.at("documents_crc32"));
  shard.end = {whole_number<size_t>(line.at("end").at(0)),
               whole_number<uint64_t>(line.at("end").at(1)),
               whole_number<uint64_t>(line.at("end").at(2))};
  shard.file_position = whole_number<uint64_t>(line.at("file_position"));
  shard.counts.text_bytes = whole_number<uint64_t>(line.at("text_bytes"));
  for (const DocumentKind& kind : kDocumentKinds) {
    shard.counts.*kind.count = whole_number<uint64_t>(line.at(kind.name));
    shard.counts.*kind.examples = names_from(line.at(examples_key(kind)));
  }
  for (const json& entry : line.at("inputs"))
    shard.inputs.emplace(whole_number<size_t>(entry.at(0)), input_from(entry));
  return shard;
}

absl::Status differs(const std::string& what) {
  return absl::FailedPreconditionError(
      absl::StrCat("an interrupted run has finished shards here, but ", what,
                   "; run it as it was, or start over with --restart"));
}

absl::Status compare(const InputFile& before, const InputFile& now) {
  if (before.path != now.path)
    return differs(absl::StrCat("it read ", before.path, " where this one reads ", now.path));
  if (before.format != now.format) {
    return differs(absl::StrCat("it read ", now.path, " as ",
                                av(name_of(kInputFormatNames, before.format)), ", this one as ",
                                av(name_of(kInputFormatNames, now.format))));
  }
  if (before.bytes != now.bytes) {
    return differs(absl::StrCat(now.path, " has changed: it had ", before.bytes, " bytes, and has ",
                                now.bytes));
  }
  if (before.modified_ns != now.modified_ns)
    return differs(absl::StrCat(now.path, " was written to since then"));
  return absl::OkStatus();
}

}  // namespace

absl::Status check_same_run(const Journal::Content& journal, const RunIdentity& now) {
  const RunIdentity& earlier = journal.run;
  const DocumentCounts counts =
      journal.shards.empty() ? DocumentCounts{} : journal.shards.back().counts;
  const bool had_bad_documents = counts.repaired + counts.nuls + counts.skipped > 0;
  for (const auto& [name, value] : now.settings) {
    if (name == kBadDocumentsSetting && !had_bad_documents) continue;
    const auto before = earlier.settings.find(name);
    if (before == earlier.settings.end()) return differs("an earlier version of muster made them");
    if (before->second != value)
      return differs(absl::StrCat("with ", name, " ", before->second, ", not ", value));
  }
  const size_t count = std::min(earlier.inputs.size(), now.inputs.size());
  for (size_t i = 0; i < count; ++i) {
    if (auto status = compare(earlier.inputs[i], now.inputs[i]); !status.ok()) return status;
  }
  if (earlier.inputs.size() == now.inputs.size()) return absl::OkStatus();
  return differs(absl::StrCat("of ", earlier.inputs.size(), " input files, and this one has ",
                              now.inputs.size()));
}

absl::StatusOr<std::optional<Journal::Content>> Journal::read(const std::string& folder) {
  std::ifstream file(path_in(folder), std::ios::binary);
  if (!file) return std::nullopt;
  std::optional<Content> content;
  std::string line;
  // A line without a newline is incomplete, because the process was killed while it wrote the line.
  while (std::getline(file, line) && !file.eof()) {
    try {
      const json parsed = json::parse(line);
      if (!content) {
        content = head_from(parsed);
      } else {
        content->shards.push_back(shard_from(parsed));
      }
    } catch (const std::exception&) {
      break;
    }
  }
  if (file.bad()) return errno_status(errno, absl::StrCat("cannot read ", path_in(folder)));
  return content;
}

absl::StatusOr<std::unique_ptr<Journal>> Journal::begin(const std::string& folder,
                                                        const Content& content) {
  const std::string path = path_in(folder);
  std::string text = head_json(content).dump() + "\n";
  for (const FinishedShard& shard : content.shards) text += shard_json(shard).dump() + "\n";
  if (auto status = write_file_atomically(path, text, {.durability = Durability::kPowerLoss});
      !status.ok()) {
    return status;
  }
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return errno_status(errno, absl::StrCat("cannot open ", path));
  return absl::WrapUnique(new Journal(path, fd));
}

void Journal::remove(const std::string& folder) { unlink(path_in(folder).c_str()); }

Journal::~Journal() { close(fd_); }

absl::Status Journal::append(const FinishedShard& shard) {
  absl::Status status = write_all(fd_, shard_json(shard).dump() + "\n");
  if (status.ok() && fdatasync(fd_) != 0) status = errno_status(errno, "fdatasync");
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("cannot write ", path_, ": ", status.message()));
}

}  // namespace muster::trainer
