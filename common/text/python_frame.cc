#include "common/text/python_frame.h"

#include <array>

#include <absl/strings/numbers.h>

#include "common/text/absl_view.h"

namespace muster {
namespace {

constexpr std::array<std::string_view, 2> kPackageFolders = {"/site-packages/", "/dist-packages/"};
// Folders of Python's modules, each followed by the version: "/usr/lib/python3.11/threading.py".
constexpr std::array<std::string_view, 2> kPythonFolders = {"/lib/python3", "/lib64/python3"};
// The file that a program without changes imports to report to Muster.
constexpr std::string_view kOwnModule = "/muster_progress.py";

// Returns the path below the innermost folder of packages; empty if the file is in none.
std::string_view below_packages(std::string_view file) {
  for (const std::string_view folder : kPackageFolders) {
    const size_t at = file.rfind(folder);
    if (at != std::string_view::npos) return file.substr(at + folder.size());
  }
  return {};
}

// Returns the path below the folder of Python's own modules; empty if the file is not in it.
std::string_view below_python(std::string_view file) {
  for (const std::string_view folder : kPythonFolders) {
    const size_t at = file.find(folder);
    if (at == std::string_view::npos) continue;
    const size_t end = file.find('/', at + folder.size());
    if (end != std::string_view::npos) return file.substr(end + 1);
  }
  return {};
}

}  // namespace

PythonFrame python_frame_of(std::string_view text) {
  if (text.empty() || text[0] == '[') return {};
  // A path may contain colons and blanks: the first colon that a number and a blank follow counts.
  for (size_t colon = text.find(':'); colon != std::string_view::npos;
       colon = text.find(':', colon + 1)) {
    const size_t blank = text.find(' ', colon);
    if (blank == std::string_view::npos) return {};
    int32_t line = 0;
    if (!absl::SimpleAtoi(av(text.substr(colon + 1, blank - colon - 1)), &line)) continue;
    return {text.substr(0, colon), line, text.substr(blank + 1)};
  }
  return {};
}

bool is_python_library(std::string_view file) {
  return file.starts_with("<frozen ") || !below_packages(file).empty() ||
         !below_python(file).empty() || file.ends_with(kOwnModule);
}

std::string_view python_package_of(std::string_view file) {
  const std::string_view path = below_packages(file);
  return path.substr(0, path.find('/'));
}

std::string_view short_python_path(std::string_view file) {
  if (const std::string_view path = below_packages(file); !path.empty()) return path;
  if (const std::string_view path = below_python(file); !path.empty()) return path;
  const size_t name = file.rfind('/');
  if (name == std::string_view::npos || name == 0) return file;
  return file.substr(file.rfind('/', name - 1) + 1);  // npos + 1 is 0
}

}  // namespace muster
