// muster convert, in muster-text: converts a model from one program's file format to another's.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <system_error>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

#include "cli/terminal/progress_bar.h"
#include "cli/terminal/terminal.h"
#include "cli/text/store_files.h"
#include "cli/text/text_commands.h"
#include "cli/text/text_stop.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "trainer_core/checkpoint/find_checkpoint.h"
#include "trainer_core/convert/convert_model.h"

namespace muster::cli {
namespace {

using trainer::ConvertReport;
using trainer::ConvertTarget;
using trainer::ParameterFormat;
using trainer::StoredType;

// Parses "5GB", "500MB", "64KB", "2GiB" or "1000" into bytes; as for Hugging Face, GB is 10^9.
absl::StatusOr<int64_t> parse_size(const std::string& text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr Unit kUnits[] = {{"", 1},          {"B", 1},         {"KB", 1e3},
                             {"MB", 1e6},      {"GB", 1e9},      {"TB", 1e12},
                             {"KIB", 1 << 10}, {"MIB", 1 << 20}, {"GIB", 1 << 30}};
  const size_t end = text.find_first_not_of("0123456789.");
  std::string unit = end == std::string::npos ? "" : text.substr(end);
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  const auto* const known = std::find_if(std::begin(kUnits), std::end(kUnits),
                                         [&](const Unit& u) { return u.name == unit; });
  double number = 0;
  constexpr double kMax = 1e15;
  if (known == std::end(kUnits) || !absl::SimpleAtod(text.substr(0, end), &number) ||
      !(number * known->bytes >= 1 && number * known->bytes <= kMax)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--max-shard-size is \"", text, "\"; it must be a size such as 5GB, 500MB or 2GiB"));
  }
  return static_cast<int64_t>(number * known->bytes);
}

StoredType parse_dtype(const std::string& name) {
  for (const StoredType type : {StoredType::kF32, StoredType::kBf16, StoredType::kF16}) {
    if (name == trainer::type_name(type)) return type;
  }
  return StoredType::kOther;
}

absl::StatusOr<trainer::ConvertOptions> options_of(const ConvertArguments& arguments) {
  trainer::ConvertOptions options;
  options.from = arguments.from;
  options.to = arguments.to;
  options.tokenizer = arguments.tokenizer;
  if (arguments.allow_unused) options.unused = trainer::UnusedTensorPolicy::kAllow;
  options.base = arguments.base;
  if (!arguments.target.empty()) {
    options.target = arguments.target == "hf"     ? ConvertTarget::kHuggingFace
                     : arguments.target == "peft" ? ConvertTarget::kPeft
                                                  : ConvertTarget::kMuster;
  }
  if (!arguments.dtype.empty()) options.stored = parse_dtype(arguments.dtype);
  const auto bytes = parse_size(arguments.shard_size);
  if (!bytes.ok()) return bytes.status();
  options.shard_bytes = *bytes;
  for (const std::string& text : arguments.expected) {
    const auto expected = trainer::parse_expected(text);
    if (!expected.ok()) return expected.status();
    options.expected.insert(options.expected.end(), expected->begin(), expected->end());
  }
  return options;
}

std::string format_name(ParameterFormat format) {
  switch (format) {
    case ParameterFormat::kMuster:
      return "muster";
    case ParameterFormat::kHuggingFace:
      return "hf";
    case ParameterFormat::kMeta:
      return "meta";
  }
  return "";
}

std::string target_name(ConvertTarget target) {
  switch (target) {
    case ConvertTarget::kMuster:
      return "muster";
    case ConvertTarget::kHuggingFace:
      return "hf";
    case ConvertTarget::kPeft:
      return "peft";
  }
  return "";
}

nlohmann::json unused_names(const ConvertReport& report) {
  nlohmann::json names = nlohmann::json::array();
  for (const trainer::UnusedTensor& tensor : report.tensors.unused)
    names.push_back(escape_controls(tensor.name, Layout::kOneLine));
  return names;
}

nlohmann::json report_json(const ConvertReport& report, double seconds) {
  return {{"from", report.from_folder},
          {"from_format", format_name(report.from)},
          {"to", report.to},
          {"to_format", target_name(report.target)},
          {"parameters", report.parameters},
          {"dtype", trainer::type_name(report.stored)},
          {"files", report.files},
          {"bytes", report.bytes},
          {"rounded", report.rounded},
          {"tokenizer", report.has_tokenizer},
          {"tensors_used", report.tensors.used},
          {"tensors_ignored", report.tensors.ignored},
          {"tensors_unused", unused_names(report)},
          {"notes", report.notes},
          {"seconds", seconds}};
}

std::string report_text(const ConvertReport& report, double seconds) {
  std::string text = absl::StrFormat(
      "%s: %s parameters in %s, %s bytes in %d %s, %s\n", report.to,
      format_count(static_cast<double>(report.parameters)), av(trainer::type_name(report.stored)),
      format_count(static_cast<double>(report.bytes)), report.files,
      report.files == 1 ? "file" : "files", format_duration(seconds));
  if (report.rounded > 0) {
    absl::StrAppendFormat(&text, "%s of them were rounded to %s\n",
                          format_count(static_cast<double>(report.rounded)),
                          av(trainer::type_name(report.stored)));
  }
  absl::StrAppend(&text, "tensors: ", report.tensors.used, " used");
  for (const auto& [reason, count] : report.tensors.ignored)
    absl::StrAppend(&text, "; ", count, " ignored (", reason, ")");
  if (!report.tensors.unused.empty())
    absl::StrAppend(&text, "; ", report.tensors.unused.size(), " left out (--allow-unused)");
  text += "\n";
  if (report.target == ConvertTarget::kMuster) {
    absl::StrAppend(&text, "train from it: load_parameters_path=", shell_quoted(report.to),
                    report.has_tokenizer ? absl::StrCat("; try it: muster decode --run ",
                                                        shell_quoted(report.to), " --prompt …")
                                         : std::string(),
                    "\n");
  }
  return text;
}

trainer::ConvertProgress show_on(ProgressBar& bar, Instant start) {
  return [&bar, start](uint64_t done, uint64_t total) {
    const Instant now = monotonic_now();
    const double fraction = static_cast<double>(done) / static_cast<double>(total);
    const double seconds = std::max(to_seconds(now - start), 1e-3);
    bar.update(
        {.label = "converting",
         .fraction = fraction,
         .seconds_left = seconds_left(fraction, start, now),
         .note = absl::StrCat(format_count(static_cast<double>(done) / seconds), " parameters/s")},
        now);
  };
}

}  // namespace

int convert(const ConvertArguments& arguments) {
  auto options = options_of(arguments);
  if (!options.ok()) return fail(options.status());
  options->stop = &stop_on_signal();
  if (is_remote(options->from)) {
    auto local =
        trainer::fetch_checkpoint(options->from, fetch_events(arguments.from, *options->stop));
    if (!local.ok()) return fail_or_stop(or_cancelled(local.status(), *options->stop));
    options->from = *std::move(local);
  }
  auto tokenizer = local_input(options->tokenizer, *options->stop);
  if (!tokenizer.ok()) return fail_or_stop(tokenizer.status());
  options->tokenizer = *std::move(tokenizer);
  options->to = local_output_folder(arguments.to);
  if (is_remote(arguments.to)) {
    std::error_code ignored;  // the conversion reports a folder that is missing
    std::filesystem::create_directories(std::filesystem::path(options->to).parent_path(), ignored);
  }
  const Instant start = monotonic_now();
  Output output(STDERR_FILENO);
  ProgressBar bar(output, "convert", start);
  const auto report = trainer::convert(*options, show_on(bar, start));
  bar.hide();
  if (!report.ok()) return fail_or_stop(report.status());
  if (auto status = upload_result(arguments.to, *options->stop); !status.ok())
    return fail_or_stop(status);
  const double seconds = to_seconds(monotonic_now() - start);
  if (arguments.json) return print_result(report_json(*report, seconds).dump(2) + "\n");
  for (const std::string& note : report->notes) warn(note);
  return print_result(report_text(*report, seconds));
}

}  // namespace muster::cli
