#include "common/text/program_error.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "common/text/absl_view.h"
#include "common/text/error_family.h"
#include "common/text/has_any.h"
#include "common/text/python_frame.h"

namespace muster {
namespace {

// Leaves room for the place in the text of an exit.
constexpr size_t kErrorBytesMax = 400;
constexpr size_t kExplanationBytesMax = 200;
// Lines of output after an error that ended the program: the rest of its message, and what handlers
// and libraries print at the end. An error with more output after it was handled.
constexpr size_t kLinesAfterMax = 20;

// Substrings of lines with which programs and libraries explain an abort. A program's own lines,
// such as "val_error 0.12" and "0 failed", do not have them.
constexpr std::array<std::string_view, 22> kFatalWords = {"Error:",          " error:",
                                                          "ERROR",           "Exception:",
                                                          "FATAL",           "Fatal",
                                                          "fatal",           "Assert",
                                                          "assert",          "Abort",
                                                          "abort",           "terminat",
                                                          "what():",         "heck failed",
                                                          "invalid pointer", "invalid size",
                                                          "corrupt",         "double free",
                                                          "smashing",        "bad_alloc",
                                                          "panic",           "overflow detected"};
// Types of exceptions that a program raises again if nothing but the attempt changes. Others, such
// as RuntimeError, may come from devices, storage or libraries.
constexpr std::array<std::string_view, 14> kLastingTypes = {
    "ArithmeticError",   "AssertionError", "AttributeError", "IndentationError",
    "IndexError",        "KeyError",       "NameError",      "NotImplementedError",
    "OverflowError",     "RecursionError", "SyntaxError",    "TypeError",
    "UnboundLocalError", "ValueError"};
// Messages of shells, loaders and interpreters that end a program without a word of kFatalWords.
constexpr std::array<std::string_view, 13> kEndWords = {"No such file or directory",
                                                        "No module named",
                                                        "can't open file",
                                                        "cannot open shared object file",
                                                        "Permission denied",
                                                        "command not found",
                                                        "Illegal instruction",
                                                        "Segmentation fault",
                                                        "core dumped",
                                                        "cannot execute",
                                                        " stopping training",
                                                        "(ulimit ",
                                                        "--shm-size"};
// Levels of log lines that report no end, and the words with which they report other failures.
constexpr std::array<std::string_view, 5> kHarmlessWords = {"WARN", "Warning", "warning", "INFO",
                                                            "DEBUG"};
// Lines before a traceback that Python prints for an exception that ends nothing: one in a
// destructor or at the end of the interpreter.
constexpr std::array<std::string_view, 3> kIgnoredLines = {
    "Exception ignored in", "Exception ignored on", "Error in atexit._run_exitfuncs"};
constexpr std::string_view kShutdownText = "Python is likely shutting down";
// NCCL's own cause follows its exception: "Last error:" and the lines after it.
constexpr std::string_view kLastError = "Last error:";
// The clauses that the worker adds to the reason of a rank.
constexpr std::string_view kKernelNote = "; the kernel ";
// Lines between an exception and another one that was raised while it was handled.
constexpr std::array<std::string_view, 2> kChainLines = {
    "During handling of the above exception", "The above exception was the direct cause"};

// Returns the line without the prefix that PyTorch writes before each line of a traceback:
// "[rank1]: ".
std::string_view without_rank(std::string_view line) {
  if (!line.starts_with("[rank")) return line;
  const size_t end = line.find("]:");
  if (end == std::string_view::npos) return line;
  line.remove_prefix(end + 2);
  if (line.starts_with(' ')) line.remove_prefix(1);
  return line;
}

// Returns the frame in a line of a traceback, `File "/x/train.py", line 31, in step`, or of
// faulthandler, which has no comma before "in".
std::optional<PythonFrame> frame_in(std::string_view line) {
  absl::string_view rest = absl::StripLeadingAsciiWhitespace(av(line));
  if (!absl::ConsumePrefix(&rest, "File \"")) return std::nullopt;
  const size_t quote = rest.find("\", line ");
  if (quote == absl::string_view::npos) return std::nullopt;
  PythonFrame frame;
  frame.file = std::string_view(rest.data(), quote);
  rest.remove_prefix(quote + 8);
  const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (!absl::SimpleAtoi(rest.substr(0, digits), &frame.line)) return std::nullopt;
  rest.remove_prefix(digits);
  absl::ConsumePrefix(&rest, ",");
  if (absl::ConsumePrefix(&rest, " in "))
    frame.function = std::string_view(rest.data(), rest.size());
  return frame;
}

std::string place_of(const PythonFrame& frame) {
  return absl::StrCat(av(short_python_path(frame.file)), ":", frame.line,
                      frame.function.empty() ? "" : " ", av(frame.function));
}

bool joins_exceptions(std::string_view line) {
  return std::ranges::any_of(kChainLines,
                             [&](std::string_view text) { return line.starts_with(text); });
}

// Returns whether the line begins with the type of an exception: "ValueError: …",
// "data.BadShard: …" or "KeyboardInterrupt". Levels of log lines, in capital letters, and names
// such as "wandb" are no types.
bool begins_with_type(std::string_view line) {
  const size_t colon = std::min(line.find(": "), line.size());
  std::string_view name = line.substr(0, colon);
  if (name.ends_with(':')) name.remove_suffix(1);
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0) return false;
  const auto is_part = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; };
  const auto is_capital = [](unsigned char c) { return std::islower(c) == 0; };
  const bool is_plain_word = std::islower(static_cast<unsigned char>(name[0])) != 0 &&
                             name.find('.') == std::string_view::npos && !name.ends_with("Error") &&
                             !name.ends_with("Exception");
  return std::ranges::all_of(name, is_part) && !std::ranges::all_of(name, is_capital) &&
         !is_plain_word;
}

std::string shortened(std::string_view text, size_t bytes_max) {
  const absl::string_view stripped = absl::StripAsciiWhitespace(av(text));
  return std::string(stripped.substr(0, bytes_max));
}

// Collects the frames of one traceback.
class Traceback {
 public:
  void clear() { *this = {}; }
  bool empty() const { return outermost_.empty() && place_.empty(); }
  void add(const PythonFrame& frame) {
    outermost_ = place_of(frame);
    if (!is_python_library(frame.file)) place_ = outermost_;
  }
  // Returns the innermost frame of the program's own files, or of any file.
  const std::string& place() const { return place_.empty() ? outermost_ : place_; }

 private:
  std::string outermost_;  // the last frame
  std::string place_;
};

// Returns whether a line of output after an exception may explain it: only by errors that pass or
// are consequences. Libraries that end, and loggers, write about failures that have ended nothing.
bool may_explain(std::string_view line, const ErrorFamily& family) {
  const bool is_weak =
      family.origin == ErrorOrigin::kPassing || family.origin == ErrorOrigin::kPeer;
  return is_weak && has_any(line, kFatalWords) && !has_any(line, kHarmlessWords);
}

// Adds the first later line of a known family to an error without one, or that only reports a lost
// peer. Families are ordered, so that the cause of a lost peer comes before it.
void add_explanation(std::span<const std::string> later, ProgramError& error) {
  const ErrorFamily* known = find_error_family(error.text);
  // NCCL's exception only names the kind of call that failed, for example "unhandled cuda error".
  const bool is_vague = known != nullptr && known->origin == ErrorOrigin::kPassing &&
                        has_any(error.text, {"NCCL error"});
  if (known != nullptr && known->origin != ErrorOrigin::kPeer && !is_vague) return;
  bool is_of_nccl = false;
  for (const std::string& one : later.first(std::min(later.size(), kLinesAfterMax))) {
    const std::string_view line = without_rank(one);
    if (frame_in(line)) return;
    is_of_nccl = is_of_nccl || line.starts_with(kLastError);
    const ErrorFamily* family = find_error_family(line);
    if (family == nullptr || (known != nullptr && family >= known) ||
        !(is_of_nccl || line.starts_with("nccl") || (!is_vague && may_explain(line, *family))))
      continue;
    absl::StrAppend(&error.text, "; ", shortened(line, kExplanationBytesMax));
    return;
  }
}

// Adds a handled exception to one that was raised meanwhile, if the next attempt may not have it.
void add_cause(const ProgramError& handled, ProgramError& error) {
  const bool is_known = reports_lost_peer(error.text) || reports_environment(error.text);
  if (is_known || (!reports_lost_peer(handled.text) && !reports_environment(handled.text))) return;
  absl::StrAppend(&error.text, "; after ", shortened(handled.text, kExplanationBytesMax));
}

// Returns whether a line without a word of kFatalWords explains an abort: libraries report a lost
// peer or a failed GPU so. Other known errors may be in any line of output.
bool explains_abort(std::string_view line) {
  const ErrorFamily* family = find_error_family(line);
  return family != nullptr &&
         (family->origin == ErrorOrigin::kPeer || family->origin == ErrorOrigin::kNode);
}

// Returns the error of a fatal signal in Python, "Fatal Python error: Aborted", with the first line
// of the program, because faulthandler prints the innermost frame first.
ProgramError fatal_python_error(std::string_view first, std::span<const std::string> later) {
  ProgramError error{shortened(first, kErrorBytesMax), ""};
  for (const std::string& line : later) {
    const auto frame = frame_in(line);
    if (!frame || is_python_library(frame->file)) continue;
    error.place = place_of(*frame);
    break;
  }
  return error;
}

}  // namespace

std::optional<ProgramError> find_program_error(std::span<const std::string> lines) {
  std::optional<ProgramError> found;
  size_t found_at = 0;
  std::optional<ProgramError> fatal;  // a line that explains an abort, without a traceback
  Traceback traceback;
  bool chained = false;  // the next exception was raised while `found` was handled
  bool ignored = false;  // the next exception ended nothing
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = without_rank(lines[i]);
    const auto later = lines.subspan(i + 1);
    const bool is_recent = later.size() <= kLinesAfterMax;
    if (has_any(line, kIgnoredLines)) {
      ignored = true;
      traceback.clear();
    } else if (absl::StrContains(av(line), "Traceback (most recent call last)")) {
      traceback.clear();
    } else if (joins_exceptions(line)) {
      chained = found.has_value();
    } else if (const auto frame = frame_in(line)) {
      traceback.add(*frame);
    } else if (line.starts_with("Fatal Python error: ")) {
      found = fatal_python_error(line, later);
      return found;
    } else if (begins_with_type(line) &&
               (std::exchange(ignored, false) || absl::StrContains(av(line), av(kShutdownText)))) {
      traceback.clear();
    } else if (!traceback.empty() && begins_with_type(line)) {
      ProgramError error{shortened(line, kErrorBytesMax), traceback.place()};
      add_explanation(later, error);
      if (std::exchange(chained, false)) add_cause(*found, error);
      found = std::move(error);
      found_at = i;
      traceback.clear();
    } else if (!traceback.empty() && !line.empty() && line[0] != ' ') {
      traceback.clear();  // the beginning of the exception's line is missing
    } else if (is_recent && (has_any(line, kFatalWords) || explains_abort(line))) {
      // "what():" has the message of the exception that "terminate called" only names, and a line
      // with a known cause comes before the one that reports the abort.
      const bool is_named = fatal && (absl::StrContains(av(fatal->text), "what():") ||
                                      (find_error_family(fatal->text) && !find_error_family(line)));
      if (!is_named) fatal = ProgramError{shortened(line, kErrorBytesMax), ""};
    }
  }
  if (found && lines.size() - found_at <= kLinesAfterMax + 1) return found;
  return fatal;
}

std::string to_string(const ProgramError& error) {
  return error.place.empty() ? error.text : absl::StrCat(error.text, " (", error.place, ")");
}

bool is_error_text(std::string_view text) {
  if (!error_place(text).empty() || text.find(kKernelNote.substr(2)) != std::string_view::npos)
    return true;
  if (begins_with_type(text) && error_type(text).ends_with("Error")) return true;
  return (has_any(text, kFatalWords) || has_any(text, kEndWords)) && !has_any(text, kHarmlessWords);
}

std::string error_place(std::string_view text) {
  text = text.substr(0, text.find(kKernelNote));
  const size_t open = text.rfind(" (");
  if (open == std::string_view::npos || !text.ends_with(')')) return "";
  const std::string_view place = text.substr(open + 2, text.size() - open - 3);
  return std::string(python_frame_of(place).line == 0 ? "" : place);
}

std::string error_type(std::string_view text) {
  return std::string(text.substr(0, std::min(text.find(": "), text.find(" ("))));
}

std::string error_signature(std::string_view text) {
  const std::string place = error_place(text), type = error_type(text);
  if (place.empty() || std::ranges::find(kLastingTypes, type) == kLastingTypes.end()) return "";
  return absl::StrCat(type, " at ", place);
}

bool reports_lost_peer(std::string_view text) {
  const ErrorFamily* family = find_error_family(text);
  return family != nullptr && family->origin == ErrorOrigin::kPeer;
}

bool reports_environment(std::string_view text) {
  const ErrorFamily* family = find_error_family(text);
  return family != nullptr &&
         (family->origin == ErrorOrigin::kNode || family->origin == ErrorOrigin::kSetup ||
          family->origin == ErrorOrigin::kPassing);
}

}  // namespace muster
