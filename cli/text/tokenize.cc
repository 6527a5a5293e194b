// muster tokenize, in muster-text: texts → token shards.
#include "trainer_core/text/tokenize.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <nlohmann/json.hpp>

#include "cli/terminal/terminal.h"
#include "cli/text/store_files.h"
#include "cli/text/text_commands.h"
#include "cli/text/text_progress.h"
#include "cli/text/text_stop.h"
#include "common/text/escape.h"
#include "common/text/number_text.h"

namespace muster::cli {
namespace {

using trainer::TokenizeReport;

// Bounds the names in a list.
constexpr size_t kNamesShown = 3;
// Bounds the inputs that the text and the JSON report list.
constexpr size_t kInputsShown = 20;
constexpr size_t kInputsInJson = 10'000;

// Returns an option of samples that is given for plain texts; null: none.
const char* stray_option(const TokenizeArguments& arguments) {
  if (arguments.sft || arguments.dpo) return nullptr;
  if (!arguments.chat_template.empty()) return "--chat-template";
  if (!arguments.chat_template_name.empty()) return "--chat-template-name";
  return arguments.bos ? "--bos" : nullptr;
}

trainer::TokenizeOptions options_of(const TokenizeArguments& arguments) {
  trainer::TokenizeOptions options;
  options.inputs = arguments.text;
  options.format =
      trainer::value_named<trainer::InputFormat>(trainer::kInputFormatNames, arguments.format);
  options.split = arguments.split;
  options.tokenizer_path = arguments.tokenizer;
  options.encoding = arguments.encoding;
  options.output_directory = arguments.out;
  options.encode.read.field = arguments.field;
  // The parser accepts known names only.
  options.encode.read.documents = *trainer::value_named<trainer::DocumentUnit>(
      trainer::kTextDocumentsNames, arguments.documents);
  options.encode.bad_documents = *trainer::value_named<trainer::BadDocuments>(
      trainer::kBadDocumentsNames, arguments.bad_documents);
  options.encode.add_eos = !arguments.no_eos;
  options.sft = arguments.sft || arguments.dpo;
  options.dpo = arguments.dpo;
  options.sft_add_bos = arguments.bos;
  options.chat_template = arguments.chat_template;
  options.chat_template_name = arguments.chat_template_name;
  options.threads = arguments.threads;
  options.shard_tokens = arguments.shard_tokens;
  options.restart = arguments.restart;
  return options;
}

// Replaces addresses of object stores by local files.
absl::Status make_local(trainer::TokenizeOptions& options) {
  for (std::string* path : {&options.tokenizer_path, &options.output_directory}) {
    if (!is_remote(*path)) continue;
    if (const auto url = parse_object_url(*path); !url.ok()) return url.status();
  }
  options.output_directory = local_output_folder(options.output_directory);
  auto tokenizer = local_input(options.tokenizer_path, *options.stop);
  if (!tokenizer.ok()) return tokenizer.status();
  options.tokenizer_path = *std::move(tokenizer);
  for (std::string& input : options.inputs) {
    auto local = local_input(input, *options.stop);
    if (!local.ok()) return local.status();
    input = *std::move(local);
  }
  return absl::OkStatus();
}

// File names are untrusted: JSON needs UTF-8, and a terminal must not execute control sequences.
nlohmann::json shown(const std::vector<std::string>& names) {
  nlohmann::json list = nlohmann::json::array();
  for (const std::string& name : names) list.push_back(escape_controls(name, Layout::kOneLine));
  return list;
}

nlohmann::json input_json(const trainer::InputReport& input) {
  const trainer::DocumentCounts& counts = input.read.counts;
  nlohmann::json entry = {{"path", escape_controls(input.path, Layout::kOneLine)},
                          {"bytes", input.bytes},
                          {"bytes_read", input.read.file_bytes},
                          {"documents", input.read.documents},
                          {"tokens", input.read.tokens},
                          {"text_bytes", counts.text_bytes},
                          {"documents_repaired", counts.repaired},
                          {"documents_with_nul", counts.nuls},
                          {"documents_skipped", counts.skipped},
                          {"documents_cut", counts.cut},
                          {"documents_empty", counts.empty},
                          {"byte_order_marks", counts.marks}};
  const std::pair<const char*, const std::vector<std::string>*> lists[] = {
      {"repaired_examples", &counts.repaired_examples},
      {"skipped_examples", &counts.skipped_examples},
      {"cut_examples", &counts.cut_examples},
      {"empty_examples", &counts.empty_examples},
      {"byte_order_mark_examples", &counts.marks_examples},
      {"nul_examples", &counts.nuls_examples}};
  for (const auto& [name, examples] : lists) {
    if (!examples->empty()) entry[name] = shown(*examples);
  }
  return entry;
}

nlohmann::json input_list_json(const TokenizeReport& report) {
  nlohmann::json list = nlohmann::json::array();
  for (size_t i = 0; i < std::min(report.inputs.size(), kInputsInJson); ++i)
    list.push_back(input_json(report.inputs[i]));
  return list;
}

nlohmann::json ignored_json(const TokenizeReport& report) {
  nlohmann::json list = nlohmann::json::array();
  for (size_t i = 0; i < std::min(report.ignored.size(), kInputsInJson); ++i) {
    list.push_back({{"path", escape_controls(report.ignored[i].path, Layout::kOneLine)},
                    {"reason", escape_controls(report.ignored[i].reason, Layout::kOneLine)}});
  }
  return list;
}

struct Rates {
  double text_bytes_per_second = 0;
  double tokens_per_second = 0;
};

// Returns the rates of this run, without the shards of an earlier one.
Rates rates_of(const TokenizeReport& report, double seconds) {
  uint64_t tokens = 0;
  for (size_t i = report.reused_shards; i < report.index.shards.size(); ++i)
    tokens += report.index.shards[i].tokens;
  const uint64_t bytes = report.index.bytes - report.reused_text_bytes;
  seconds = std::max(seconds, 1e-3);
  return {static_cast<double>(bytes) / seconds, static_cast<double>(tokens) / seconds};
}

std::string summary_json(const TokenizeArguments& arguments, const TokenizeReport& report,
                         double seconds) {
  const nlohmann::json summary = {
      {"path", arguments.out},
      {"files", report.input_files},
      {"files_ignored", report.ignored.size()},
      {"ignored", ignored_json(report)},
      {"inputs", input_list_json(report)},
      {"tokenizer", report.tokenizer},
      {"tokenizer_file", escape_controls(report.tokenizer_file, Layout::kOneLine)},
      {"chat_template", escape_controls(report.chat_template, Layout::kOneLine)},
      {"split", report.split},
      {"files_left_out", report.left_out},
      {"notes", shown(report.notes)},
      {"input_bytes", report.input_bytes},
      {"documents", report.index.documents},
      {"documents_repaired", report.counts.repaired},
      {"documents_with_nul", report.counts.nuls},
      {"documents_skipped", report.counts.skipped},
      {"documents_cut", report.counts.cut},
      {"documents_empty", report.counts.empty},
      {"byte_order_marks", report.counts.marks},
      {"cut_examples", shown(report.counts.cut_examples)},
      {"empty_examples", shown(report.counts.empty_examples)},
      {"byte_order_mark_examples", shown(report.counts.marks_examples)},
      {"repaired_examples", shown(report.counts.repaired_examples)},
      {"nul_examples", shown(report.counts.nuls_examples)},
      {"skipped_examples", shown(report.counts.skipped_examples)},
      {"tokens", report.index.tokens},
      {"bytes", report.index.bytes},
      {"bytes_per_second", rates_of(report, seconds).text_bytes_per_second},
      {"shards", report.index.shards.size()},
      {"shards_kept", report.reused_shards},
      {"vocab_size", report.index.vocab_size},
      {"unigram_entropy_nats", report.index.unigram_entropy_nats},
      {"seconds", seconds}};
  return summary.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// Returns "skipped: 3 documents\n  a.jsonl:7 (byte 812) is not JSON: …\n"; "" if there are none.
std::string list_of(const std::string& label, uint64_t count, const std::string& why,
                    const std::vector<std::string>& examples,
                    const std::string& what = "document") {
  if (count == 0) return "";
  std::string text = absl::StrCat(label, ": ", counted(count, what), why, "\n");
  for (const std::string& example : examples)
    absl::StrAppend(&text, "  ", escape_controls(example, Layout::kOneLine), "\n");
  if (count > examples.size())
    absl::StrAppend(&text, "  … and ", count - examples.size(), " more\n");
  return text;
}

// Returns ", 3 skipped" for a count that is not zero.
std::string beside(uint64_t count, const char* what) {
  return count == 0 ? "" : absl::StrCat(", ", count, " ", what);
}

// One line per input; of many inputs the first ones.
std::string inputs_text(const TokenizeReport& report) {
  std::string text;
  const size_t count = std::min(report.inputs.size(), kInputsShown);
  for (size_t i = 0; i < count; ++i) {
    const trainer::InputReport& input = report.inputs[i];
    const trainer::DocumentCounts& counts = input.read.counts;
    absl::StrAppend(
        &text, "  ", escape_controls(input.path, Layout::kOneLine), ": ",
        counted(input.read.documents, "document"), ", ", counted(input.read.tokens, "token"), ", ",
        counted(input.read.file_bytes, "byte"), " read", beside(counts.repaired, "repaired"),
        beside(counts.nuls, "with NUL"), beside(counts.skipped, "skipped"),
        beside(counts.cut, "cut"), beside(counts.empty, "empty"), "\n");
  }
  if (count < report.inputs.size()) {
    absl::StrAppend(&text, "  … and ", counted(report.inputs.size() - count, "input"),
                    " more; --json lists them\n");
  }
  return text;
}

// Entries of folders that are not read, by reason.
std::string ignored_text(const TokenizeReport& report) {
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const trainer::IgnoredEntry& entry : report.ignored) {
    const bool is_same = !entry.same_as.empty();  // one reason for all of these
    const bool is_read = !absl::EndsWith(entry.reason, trainer::kUnreadTwin);
    const std::string reason = !is_same  ? entry.reason
                               : is_read ? "read by another path"
                                         : "not read by another path either";
    by_reason[reason].push_back(is_same ? absl::StrCat(entry.path, " (", entry.reason, ")")
                                        : entry.path);
  }
  std::string text;
  for (const auto& [reason, names] : by_reason) {
    const size_t count = std::min(names.size(), kNamesShown);
    absl::StrAppend(
        &text, "ignored: ", counted(names.size(), "file"), ", ", reason, ": ",
        escape_controls(
            absl::StrJoin(names.begin(), names.begin() + static_cast<ptrdiff_t>(count), ", "),
            Layout::kOneLine),
        count < names.size() ? ", …" : "", "\n");
  }
  return text;
}

std::string summary_text(const TokenizeArguments& arguments, const TokenizeReport& report,
                         double seconds) {
  const trainer::TokenIndex& index = report.index;
  const Rates rates = rates_of(report, seconds);
  std::string text = absl::StrFormat(
      "%s: %s, %s in %s, %.2f bytes/token; %sB/s, %s tokens/s\n"
      "unigram entropy: %.3f nats per token (the loss of a model of the frequencies alone)\n",
      arguments.out, counted(index.documents, "document"), counted(index.tokens, "token"),
      counted(index.shards.size(), "shard"),
      static_cast<double>(index.bytes) / static_cast<double>(index.tokens),
      format_count(rates.text_bytes_per_second), format_count(rates.tokens_per_second),
      index.unigram_entropy_nats);
  text += inputs_text(report);
  absl::StrAppend(&text, "tokenizer: ", escape_controls(report.tokenizer_file, Layout::kOneLine),
                  ", ", report.tokenizer, "\n");
  if (!report.chat_template.empty())
    absl::StrAppend(
        &text, "chat template: ", escape_controls(report.chat_template, Layout::kOneLine), "\n");
  if (!report.split.empty()) absl::StrAppend(&text, "split: ", report.split, "\n");
  for (const auto& [split, files] : report.left_out) {
    absl::StrAppend(&text, "left out: ", counted(files, "file"), " of the split ",
                    escape_controls(split.empty() ? "without a name" : split, Layout::kOneLine),
                    "; --split all reads every file\n");
  }
  for (const std::string& note : report.notes)
    absl::StrAppend(&text, "note: ", escape_controls(note, Layout::kOneLine), "\n");
  if (report.reused_shards > 0) {
    absl::StrAppend(&text, "resumed: ", counted(report.reused_shards, "shard"),
                    " of an interrupted run kept\n");
  }
  text += list_of("repaired", report.counts.repaired, " with U+FFFD for invalid UTF-8",
                  report.counts.repaired_examples);
  text +=
      list_of("repaired", report.counts.nuls, " with U+FFFD for NUL", report.counts.nuls_examples);
  text += list_of("skipped", report.counts.skipped, "", report.counts.skipped_examples);
  text +=
      list_of("cut", report.counts.cut,
              absl::StrCat(" at ", trainer::kDocumentBytesMax, " bytes; the rest is the next one"),
              report.counts.cut_examples);
  text += list_of("empty", report.counts.empty, " without text", report.counts.empty_examples);
  text +=
      list_of("byte order marks left out", report.counts.marks, "", report.counts.marks_examples);
  text += ignored_text(report);
  return text;
}

}  // namespace

int tokenize(const TokenizeArguments& arguments) {
  const Instant start = monotonic_now();
  Output output(STDERR_FILENO);
  ProgressBar bar(output, "tokenize", start);
  if (const char* const option = stray_option(arguments); option != nullptr) {
    return fail(absl::InvalidArgumentError(
        absl::StrCat(option, " is for samples: it requires --sft or --dpo")));
  }
  trainer::TokenizeOptions options = options_of(arguments);
  options.stop = &stop_on_signal();
  if (auto status = make_local(options); !status.ok()) return fail_or_stop(status);
  const auto report =
      trainer::tokenize_files(options, [&](const trainer::TokenizeProgress& progress) {
        const Instant now = monotonic_now();
        bar.update(reading_progress(progress.done, progress.total, start, now, progress.from), now);
      });
  bar.hide();
  if (!report.ok()) return fail_or_stop(report.status());
  if (auto status = upload_result(arguments.out, *options.stop); !status.ok())
    return fail_or_stop(status);
  const double seconds = to_seconds(monotonic_now() - start);
  return print_result(arguments.json ? summary_json(arguments, *report, seconds)
                                     : summary_text(arguments, *report, seconds));
}

}  // namespace muster::cli
