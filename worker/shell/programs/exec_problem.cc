#include "worker/shell/programs/exec_problem.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"

namespace muster::worker {
namespace {

// The kernel reads as many bytes of a script's first line.
constexpr size_t kFirstLineBytesMax = 256;
// The kernel follows as many interpreters of interpreters.
constexpr int kInterpretersMax = 4;
constexpr size_t kShownBytesMax = 256;
constexpr char kAdvice[] = "name its interpreter in front (bash FILE, python3 FILE)";
constexpr char kCarriageReturn[] =
    "the line ends in a carriage return, as in files with Windows' line ends; remove it: sed -i "
    "'s/\\r$//' FILE";

std::string shown(std::string_view text) { return printable(text, kShownBytesMax); }

absl::Status refused(const std::string& program, std::string_view why) {
  return absl::PermissionDeniedError(
      absl::StrCat(shown(program), " cannot be executed: ", av(why)));
}

// Returns up to `count` bytes at `offset`; nullopt if the file cannot be read.
std::optional<std::string> bytes_of(const std::string& path, off_t offset, size_t count) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  absl::Cleanup close_file = [fd] { close(fd); };
  std::string bytes(count, '\0');
  const ssize_t got = pread(fd, bytes.data(), count, offset);
  if (got < 0) return std::nullopt;
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

bool exists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

// The words of "#! /usr/bin/env -S python3 -u": the interpreter, and the rest as one argument.
struct InterpreterLine {
  std::string interpreter;
  std::string argument;
};

// Returns nullopt for a file that does not begin with "#!".
std::optional<InterpreterLine> interpreter_line(std::string_view head) {
  if (!head.starts_with("#!")) return std::nullopt;
  std::string_view line = head.substr(2, head.find('\n') - 2);
  const auto skip_blanks = [&line] {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  };
  skip_blanks();
  const size_t end = std::min(line.find_first_of(" \t"), line.size());
  InterpreterLine words{std::string(line.substr(0, end)), ""};
  line.remove_prefix(end);
  skip_blanks();
  words.argument = line.substr(0, line.find_last_not_of(" \t") + 1);
  return words;
}

// Returns the dynamic loader of a program with such headers; "" without one.
template <class Header, class Segment>
std::string loader_by(const std::string& program, std::string_view head) {
  Header header{};
  if (head.size() < sizeof(header)) return "";
  std::memcpy(&header, head.data(), sizeof(header));
  constexpr int kSegmentsMax = 64;
  for (int i = 0; i < std::min<int>(header.e_phnum, kSegmentsMax); ++i) {
    Segment segment{};
    const auto at = static_cast<off_t>(header.e_phoff + static_cast<uint64_t>(i) * sizeof(segment));
    const auto bytes = bytes_of(program, at, sizeof(segment));
    if (!bytes || bytes->size() != sizeof(segment)) return "";
    std::memcpy(&segment, bytes->data(), sizeof(segment));
    if (segment.p_type != PT_INTERP) continue;
    const auto name = bytes_of(program, static_cast<off_t>(segment.p_offset),
                               std::min<size_t>(segment.p_filesz, kShownBytesMax));
    return name ? std::string(name->c_str()) : "";
  }
  return "";
}

// Requires that `head` begins with ELFMAG.
std::string loader_of(const std::string& program, std::string_view head) {
  if (head.size() <= EI_CLASS) return "";
  switch (head[EI_CLASS]) {
    case ELFCLASS64:
      return loader_by<Elf64_Ehdr, Elf64_Phdr>(program, head);
    case ELFCLASS32:
      return loader_by<Elf32_Ehdr, Elf32_Phdr>(program, head);
    default:
      return "";
  }
}

// Returns why a program that exists cannot be found, or "".
std::string missing_part(const std::string& program, std::string_view head) {
  if (const auto line = interpreter_line(head)) {
    if (line->interpreter.empty()) return "its first line #! names no interpreter";
    if (!exists(line->interpreter))
      return absl::StrCat("its first line names the interpreter ", shown(line->interpreter),
                          ", which does not exist");
    return "";
  }
  const std::string loader = head.starts_with(ELFMAG) ? loader_of(program, head) : "";
  if (loader.empty() || exists(loader)) return "";
  return absl::StrCat("its dynamic loader ", shown(loader),
                      " does not exist: it was built for another system");
}

// Returns why the kernel does not support the file's format.
std::string format_problem(std::string_view head) {
  if (head.empty()) return "the file is empty";
  if (head.starts_with(ELFMAG))
    return "it is a program for another processor than this machine's, or it is incomplete";
  if (head.starts_with("\xEF\xBB\xBF"))
    return "a byte order mark stands before its first line; save the file without it";
  if (head.starts_with("\xFF\xFE") || head.starts_with("\xFE\xFF"))
    return "it is text in UTF-16; save it in UTF-8";
  const bool is_text = head.find('\0') == std::string_view::npos;
  return is_text ? absl::StrCat("it has no interpreter line (#!); ", kAdvice)
                 : "it is no program of this system";
}

// Returns why access is denied, although the file may have the permission.
std::string denied_because(const std::string& program, std::string_view head) {
  struct statvfs system {};
  if (statvfs(program.c_str(), &system) == 0 && (system.f_flag & ST_NOEXEC) != 0)
    return absl::StrCat("its file system is mounted with noexec; ", kAdvice);
  const auto line = interpreter_line(head);
  struct stat interpreter {};
  if (line && stat(line->interpreter.c_str(), &interpreter) == 0 && S_ISDIR(interpreter.st_mode))
    return absl::StrCat("its first line names the interpreter ", shown(line->interpreter),
                        ", which is a folder");
  if (line && faccessat(AT_FDCWD, line->interpreter.c_str(), X_OK, AT_EACCESS) != 0)
    return absl::StrCat("its interpreter ", shown(line->interpreter), " is not executable");
  return absl::StrCat("permission is denied: chmod +x, or ", kAdvice);
}

// Returns whether the errno may be another one in a moment.
bool may_pass(int error) {
  return error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE ||
         error == ETXTBSY || error == EIO || error == EINTR;
}

absl::Status problem_of(int error, const std::string& program, int interpreters) {
  const std::string head = bytes_of(program, 0, kFirstLineBytesMax).value_or("");
  const auto line = interpreter_line(head);
  // The interpreter may itself be a script, whose interpreter is the missing one.
  if (line && interpreters < kInterpretersMax && (error == ENOENT || error == ENOEXEC) &&
      exists(line->interpreter) && bytes_of(line->interpreter, 0, 2).value_or("") == "#!")
    return problem_of(error, line->interpreter, interpreters + 1);
  switch (error) {
    case ENOENT:
    case ENOTDIR: {
      if (!exists(program))
        return absl::NotFoundError(absl::StrCat("there is no program ", shown(program)));
      const std::string missing = missing_part(program, head);
      return refused(program, missing.empty() ? "a part that it needs does not exist" : missing);
    }
    case ENOEXEC: {
      const std::string missing = line ? missing_part(program, head) : "";
      return refused(program, missing.empty() ? format_problem(head) : missing);
    }
    case EACCES:
    case EPERM:
      return refused(program, denied_because(program, head));
    case E2BIG:
      return refused(program, "its arguments and environment are larger than the system allows");
    case ELOOP:
      return refused(program, "too many interpreters of interpreters, or a cycle of links");
    default:
      return refused(program, std::strerror(error));
  }
}

}  // namespace

absl::Status check_interpreter_line(const std::string& program) {
  const std::string head = bytes_of(program, 0, kFirstLineBytesMax).value_or("");
  const auto line = interpreter_line(head);
  if (!line) return absl::OkStatus();
  const std::string& last = line->argument.empty() ? line->interpreter : line->argument;
  if (!last.ends_with('\r') || exists(line->interpreter + line->argument)) return absl::OkStatus();
  return refused(program, absl::StrCat("its first line names the interpreter ",
                                       shown(line->interpreter), line->argument.empty() ? "" : " ",
                                       shown(line->argument), ": ", kCarriageReturn));
}

absl::Status exec_problem(int error, const std::string& program) {
  if (may_pass(error)) return errno_status(error, absl::StrCat("executing ", shown(program)));
  if (auto status = check_interpreter_line(program); !status.ok()) return status;
  return problem_of(error, program, 0);
}

}  // namespace muster::worker
