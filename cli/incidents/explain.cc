// muster explain: names the known error at the end of logs, and what it means for a restart.
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/terminal/terminal.h"
#include "common/text/absl_view.h"
#include "common/text/error_family.h"
#include "common/text/program_error.h"

namespace muster::cli {
namespace {

// As many lines as a worker reads of a rank that has ended.
constexpr size_t kLinesMax = 200;

struct ExplainOptions {
  std::vector<std::string> files;
  bool json = false;
  bool markdown = false;
};

struct Explanation {
  std::string file;
  std::string error;  // empty: no line reports an error
  const ErrorFamily* family = nullptr;
};

std::vector<std::string> last_lines(std::istream& in) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(std::move(line));
    if (lines.size() > 2 * kLinesMax)
      lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(kLinesMax));
  }
  if (lines.size() > kLinesMax)
    lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(kLinesMax));
  return lines;
}

Explanation explain_lines(std::string file, const std::vector<std::string>& lines) {
  Explanation found;
  found.file = std::move(file);
  if (const auto error = find_program_error(lines)) found.error = to_string(*error);
  found.family = find_error_family(found.error);
  // The log may be of the kernel, whose lines no program explains.
  for (size_t i = lines.size(); i > 0 && found.family == nullptr; --i) {
    found.family = find_error_family(lines[i - 1]);
    if (found.family != nullptr && found.error.empty()) found.error = lines[i - 1];
  }
  return found;
}

std::string_view verdict_of(ErrorOrigin origin) {
  switch (origin) {
    case ErrorOrigin::kProgram:
      return "stop if all ranks report it or it repeats, else restart in place";
    case ErrorOrigin::kData:
      return "stop if all ranks report it or it repeats, else restart in place; wait for storage "
             "if "
             "the job has trained";
    case ErrorOrigin::kSetup:
      return "restart elsewhere if only one node reports it, else stop; wait for storage if the "
             "job "
             "has trained";
    case ErrorOrigin::kNode:
      return "restart elsewhere";
    case ErrorOrigin::kPassing:
      return "restart in place";
    case ErrorOrigin::kPeer:
      return "a consequence: the verdict follows from the rank that failed first";
  }
  return "";
}

std::string as_text(const Explanation& one) {
  const std::string head = one.file.empty() ? "" : absl::StrCat(shown(one.file), "\n");
  if (one.family == nullptr)
    return absl::StrCat(
        head, one.error.empty() ? "no error is found" : "error:   " + shown(one.error), "\n");
  return absl::StrCat(head, "error:   ", shown(one.error), "\nfamily:  ", av(one.family->name),
                      "\nmeaning: ", av(one.family->meaning),
                      "\nverdict: ", av(verdict_of(one.family->origin)), "\n");
}

nlohmann::json as_json(const Explanation& one) {
  nlohmann::json out = {{"file", one.file}, {"error", one.error}};
  if (one.family == nullptr) return out;
  out["family"] = one.family->name;
  out["origin"] = kErrorOriginNames[static_cast<size_t>(one.family->origin)];
  out["meaning"] = one.family->meaning;
  out["verdict"] = verdict_of(one.family->origin);
  return out;
}

constexpr std::string_view kPageHead =
    "# Known errors of programs and nodes\n"
    "\n"
    "When a rank of a program ends, its last lines and the kernel's messages are searched for "
    "these "
    "errors. Their family and\n"
    "the verdict are in `muster incident show`; what follows from them is in "
    "[recovery.md](recovery.md#known-errors).\n"
    "`muster explain FILE` searches any log. `muster explain --markdown` makes this page from\n"
    "`common/text/error_family.cc`.\n"
    "\n"
    "A message belongs to the first family that has a part of it, in upper or lower case; `*` "
    "stands for any characters.\n"
    "Names of exceptions and numbers are whole words. A message that begins with the type of an "
    "exception of a program, its\n"
    "data or its setup belongs to that type: `KeyError: 'timeout'` is a program error.\n"
    "\n"
    "| family | origin | meaning | verdict | parts of messages |\n"
    "|---|---|---|---|---|\n";

std::string as_markdown() {
  std::string text(kPageHead);
  for (const ErrorFamily& family : error_families()) {
    std::vector<std::string> parts;
    for (const std::string_view pattern : family.patterns)
      parts.push_back(absl::StrCat("`", av(pattern), "`"));
    absl::StrAppend(&text, "| ", av(family.name), " | ",
                    av(kErrorOriginNames[static_cast<size_t>(family.origin)]), " | ",
                    av(family.meaning), " | ", av(verdict_of(family.origin)), " | ",
                    absl::StrJoin(parts, ", "), " |\n");
  }
  return text;
}

int explain(const ExplainOptions& options) {
  if (options.markdown) return print_result(as_markdown());
  std::vector<Explanation> found;
  if (options.files.empty()) found.push_back(explain_lines("", last_lines(std::cin)));
  for (const std::string& file : options.files) {
    std::ifstream in(file);
    if (!in)
      return fail(absl::NotFoundError(absl::StrCat("no such file, or not readable: ", file)));
    found.push_back(explain_lines(file, last_lines(in)));
  }
  if (!options.json) {
    std::string text;
    for (const Explanation& one : found)
      absl::StrAppend(&text, text.empty() ? "" : "\n", as_text(one));
    return print_result(text);
  }
  nlohmann::json out = {{"logs", nlohmann::json::array()}};
  for (const Explanation& one : found) out["logs"].push_back(as_json(one));
  return print_result(out.dump(2) + "\n");
}

}  // namespace

void declare_explain(CLI::App& app, Action& action) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command =
      app.add_subcommand("explain", "Name the known error at the end of logs, and its meaning");
  command->add_option("FILE", options->files, "Logs of ranks or of the kernel (default: stdin)");
  command->add_flag("--markdown", options->markdown,
                    "Print all families, as the page docs/errors.md");
  add_json_option(*command, options->json);
  command->footer(
      "Examples:\n"
      "  muster explain train.log\n"
      "  muster logs 7 | muster explain\n"
      "  dmesg | muster explain");
  on_call(*command, action, options, explain);
}

}  // namespace muster::cli
