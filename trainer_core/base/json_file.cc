#include "trainer_core/base/json_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "trainer_core/base/file_kind.h"

namespace muster::trainer {
namespace {

constexpr size_t kShownBytesMax = 100;

absl::StatusOr<std::string> read_regular_file(const std::string& path, size_t bytes_max) {
  // Opening a pipe must not block.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return open_failure(errno, path);
  absl::Cleanup close_file = [fd] { close(fd); };
  struct stat info {};
  if (fstat(fd, &info) != 0) return errno_status(errno, absl::StrCat("cannot examine ", path));
  if (!S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  if (static_cast<size_t>(info.st_size) > bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", info.st_size, " bytes, but may have at most ", bytes_max));
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t bytes = 0;
  while (bytes < text.size()) {
    const ssize_t count = read(fd, text.data() + bytes, text.size() - bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_status(errno, absl::StrCat("cannot read ", path));
    if (count == 0) break;
    bytes += static_cast<size_t>(count);
  }
  text.resize(bytes);
  return text;
}

bool nests_deeper(const nlohmann::json& value, int levels) {
  if (!value.is_structured()) return false;
  return levels == 0 || std::any_of(value.begin(), value.end(), [&](const nlohmann::json& item) {
           return nests_deeper(item, levels - 1);
         });
}

}  // namespace

absl::StatusOr<nlohmann::json> read_json_file(const std::string& path, size_t bytes_max) {
  const auto text = read_regular_file(path, bytes_max);
  if (!text.ok()) return text.status();
  bool too_deep = false;
  const auto bound_depth = [&too_deep](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    too_deep = too_deep || depth > kJsonDepthMax;
    return !too_deep;
  };
  nlohmann::json json = nlohmann::json::parse(*text, bound_depth, /*allow_exceptions=*/false);
  if (too_deep) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " nests values more than ", kJsonDepthMax, " deep"));
  }
  if (json.is_discarded()) {
    const std::string problem =
        foreign_file_problem(std::string_view(*text).substr(0, kFileKindBytes), text->size());
    if (!problem.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", problem));
    if (text->starts_with("\xFF\xFE") || text->starts_with("\xFE\xFF")) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, " is UTF-16, not UTF-8; convert it with iconv -f UTF-16 -t UTF-8 first"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not JSON; if it was downloaded, download it again"));
  }
  return json;
}

std::string show_json(const nlohmann::json& value) {
  if (nests_deeper(value, kJsonDepthMax)) return std::string("a deep ") + value.type_name();
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > kShownBytesMax) text = text.substr(0, kShownBytesMax) + "…";
  return text;
}

}  // namespace muster::trainer
