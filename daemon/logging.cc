#include "daemon/logging.h"

#include <memory>
#include <string>

#include <absl/strings/str_cat.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "common/absl_view.h"

namespace muster::daemon {
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

}  // namespace muster::daemon
