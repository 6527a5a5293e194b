// muster tokenize, in muster-text: texts → token shards.
#include "trainer_core/text/tokenize.h"

#include <unistd.h>

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <nlohmann/json.hpp>

#include "cli/terminal/terminal.h"
#include "cli/text/store_files.h"
#include "cli/text/text_commands.h"
#include "cli/text/text_progress.h"
#include "cli/text/text_stop.h"
#include "common/escape.h"

namespace muster::cli {
namespace {

using trainer::TokenizeReport;

// Bounds the names in a list.
constexpr size_t kNamesShown = 3;

trainer::TokenizeOptions options_of(const TokenizeArguments& arguments) {
  trainer::TokenizeOptions options;
  options.inputs = arguments.text;
  options.format =
      trainer::value_named<trainer::InputFormat>(trainer::kInputFormatNames, arguments.format);
  options.split = arguments.split;
  options.tokenizer_path = arguments.tokenizer;
  options.output_directory = arguments.out;
  options.encode.read.field = arguments.field;
  // The parser accepts known names only.
  options.encode.read.documents = *trainer::value_named<trainer::TextDocuments>(
      trainer::kTextDocumentsNames, arguments.documents);
  options.encode.bad_documents = *trainer::value_named<trainer::BadDocuments>(
      trainer::kBadDocumentsNames, arguments.bad_documents);
  options.encode.add_eos = !arguments.no_eos;
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
      {"split", report.split},
      {"files_left_out", report.left_out},
      {"notes", shown(report.notes)},
      {"input_bytes", report.input_bytes},
      {"documents", report.index.documents},
      {"documents_repaired", report.counts.repaired},
      {"documents_skipped", report.counts.skipped},
      {"documents_cut", report.counts.cut},
      {"repaired_examples", shown(report.counts.repaired_examples)},
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

std::string counted(uint64_t count, const std::string& what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

// Returns "skipped: 3 documents\n  a.jsonl:7 (byte 812) is not JSON: …\n"; "" if there are none.
std::string list_of(const std::string& label, uint64_t count, const std::string& why,
                    const std::vector<std::string>& examples) {
  if (count == 0) return "";
  std::string text = absl::StrCat(label, ": ", counted(count, "document"), why, "\n");
  for (const std::string& example : examples)
    absl::StrAppend(&text, "  ", escape_controls(example, Layout::kOneLine), "\n");
  if (count > examples.size())
    absl::StrAppend(&text, "  … and ", count - examples.size(), " more\n");
  return text;
}

std::string summary_text(const TokenizeArguments& arguments, const TokenizeReport& report,
                         double seconds) {
  const trainer::TokenIndex& index = report.index;
  const Rates rates = rates_of(report, seconds);
  std::string text = absl::StrFormat(
      "%s: %d documents, %d tokens in %s, %.2f bytes/token; %sB/s, %s tokens/s\n"
      "unigram entropy: %.3f nats per token (the loss of a model of the frequencies alone)\n",
      arguments.out, index.documents, index.tokens, counted(index.shards.size(), "shard"),
      static_cast<double>(index.bytes) / static_cast<double>(index.tokens),
      format_count(rates.text_bytes_per_second), format_count(rates.tokens_per_second),
      index.unigram_entropy_nats);
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
  text += list_of("skipped", report.counts.skipped, "", report.counts.skipped_examples);
  if (report.counts.cut > 0) {
    absl::StrAppend(&text, "cut: ", counted(report.counts.cut, "document"), " at ",
                    trainer::kDocumentBytesMax, " bytes; the rest is the next one\n");
  }
  if (!report.ignored.empty()) {
    const size_t count = std::min(report.ignored.size(), kNamesShown);
    const std::vector<std::string> names(report.ignored.begin(),
                                         report.ignored.begin() + static_cast<ptrdiff_t>(count));
    absl::StrAppend(&text, "ignored: ", counted(report.ignored.size(), "file"), ": ",
                    escape_controls(absl::StrJoin(names, ", "), Layout::kOneLine),
                    count < report.ignored.size() ? ", …" : "", "\n");
  }
  return text;
}

}  // namespace

int tokenize(const TokenizeArguments& arguments) {
  const Instant start = monotonic_now();
  Output output(STDERR_FILENO);
  ProgressBar bar(output, "tokenize", start);
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
