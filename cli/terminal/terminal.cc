#include "cli/terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "common/process/exit_code.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"

namespace muster::cli {
namespace {

constexpr int kWidthDefault = 80;

std::string_view escape_of(Colour colour) {
  switch (colour) {
    case Colour::kRed:
      return "\x1b[31m";
    case Colour::kYellow:
      return "\x1b[33m";
    case Colour::kDim:
      return "\x1b[2m";
  }
  return "";
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] != '\0';
}

// True for a byte that is not a continuation byte of UTF-8.
bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

ExitCode exit_code_of(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kResourceExhausted:
      return ExitCode::kBadInput;
    default:
      return ExitCode::kFailure;
  }
}

}  // namespace

bool takes_escapes(int fd) {
  const char* term = std::getenv("TERM");
  return isatty(fd) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

bool takes_colour(int fd) { return takes_escapes(fd) && !is_set("NO_COLOR"); }

int terminal_width(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kWidthDefault;
}

size_t columns(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string shown(const std::string& text) { return escape_controls(text, Layout::kOneLine); }

std::string shorten(std::string_view text, size_t columns_max) {
  if (columns(text) <= columns_max) return std::string(text);
  if (columns_max == 0) return "";
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    if (begins_character(text[end]) && ++seen == columns_max) break;
  }
  return absl::StrCat(av(text.substr(0, end)), "…");
}

std::string coloured(int fd, Colour colour, std::string_view text) {
  if (!takes_colour(fd)) return std::string(text);
  return absl::StrCat(av(escape_of(colour)), av(text), "\x1b[0m");
}

bool write_text(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

int print_result(std::string_view text) {
  const absl::Status status = write_result(text);
  return status.ok() ? to_int(ExitCode::kOk) : fail(status);
}

int end_of_output(int error) {
  if (error == 0 || error == EPIPE) return to_int(ExitCode::kOk);
  return fail(errno_status(error, "cannot write to standard output"));
}

int fail(const absl::Status& status) {
  write_text(STDERR_FILENO,
             absl::StrCat("muster: ", coloured(STDERR_FILENO, Colour::kRed, "error: "),
                          escape_controls(sv(status.message())), "\n"));
  return to_int(exit_code_of(status.code()));
}

void warn(std::string_view message) {
  write_text(STDERR_FILENO,
             absl::StrCat("muster: ", coloured(STDERR_FILENO, Colour::kYellow, "warning: "),
                          escape_controls(message), "\n"));
}

void note(std::string_view message) {
  write_text(STDERR_FILENO, absl::StrCat("muster: ", escape_controls(message), "\n"));
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "-";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return absl::StrFormat("%ds", whole);
  if (whole < 3600) return absl::StrFormat("%dm %02ds", whole / 60, whole % 60);
  if (whole < 86400) return absl::StrFormat("%dh %02dm", whole / 3600, whole / 60 % 60);
  return absl::StrFormat("%dd %02dh", whole / 86400, whole / 3600 % 24);
}

std::string format_count(double value) {
  if (!std::isfinite(value)) return "-";
  const char* unit = "";
  for (const char* larger : {"k", "M", "G", "T"}) {
    if (std::fabs(value) < 999.5) break;
    value /= 1000;
    unit = larger;
  }
  const int decimals = *unit == '\0' || std::fabs(value) >= 99.95 ? 0
                       : std::fabs(value) >= 9.995                ? 1
                                                                  : 2;
  return absl::StrFormat("%.*f%s", decimals, value, unit);
}

std::string format_table(std::vector<std::vector<std::string>> rows) {
  std::vector<size_t> widths;
  for (auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = escape_controls(row[i], Layout::kOneLine);
      widths[i] = std::max(widths[i], columns(row[i]));
    }
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 < row.size()) text.append(widths[i] - columns(row[i]) + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

}  // namespace muster::cli
