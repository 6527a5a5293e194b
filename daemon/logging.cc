#include "daemon/logging.h"

#include <memory>

#include <absl/strings/str_cat.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "common/absl_view.h"

namespace muster::daemon {
namespace {

// Length of the valid UTF-8 sequence at the start of `text`; 0 when there is none.
size_t utf8_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t length = first < 0x80    ? 1
                        : first >= 0xF0 ? 4
                        : first >= 0xE0 ? 3
                        : first >= 0xC2 ? 2
                                        : 0;
  if (length == 0 || first > 0xF4 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

absl::Status set_up_logging(std::string_view program, std::string_view level) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") {
    return absl::InvalidArgumentError(
        absl::StrCat("--log-level=", av(level.substr(0, 32)),
                     ": must be one of trace, debug, info, warning, error, off"));
  }
  try {
    auto logger = std::make_shared<spdlog::logger>(
        std::string(program), std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_level(parsed);
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %n: %v", spdlog::pattern_time_type::utc);
    logger->flush_on(spdlog::level::trace);
    spdlog::set_default_logger(std::move(logger));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("setting up the log: ", error.what()));
  }
  return absl::OkStatus();
}

std::string printable(std::string_view text, size_t bytes_max) {
  std::string result;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const bool control =
        length == 1 && (static_cast<unsigned char>(text[0]) < ' ' || text[0] == 0x7F);
    const std::string_view shown = length == 0 || control ? "?" : text.substr(0, length);
    if (result.size() + shown.size() > bytes_max) return result + "…";
    result.append(shown);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result;
}

}  // namespace muster::daemon
