#include "daemon/logging.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/time/time.h>
#include <nlohmann/json.hpp>
#include <spdlog/formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "common/text/absl_view.h"

namespace muster::daemon {
namespace {

// The part of a message that is searched for its subject: enough for the numbers of a job, an
// attempt, a rank and an incident, and a name.
constexpr size_t kSubjectBytesMax = 512;

// Adds the leading names and numbers of "job 3 (llama) attempt 1 rank 0 ended" as fields.
void add_subject(std::string_view message, nlohmann::ordered_json& line) {
  std::vector<absl::string_view> words = absl::StrSplit(av(message.substr(0, kSubjectBytesMax)),
                                                        absl::ByAnyChar(" :"), absl::SkipEmpty());
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "worker" && i == 0) {
      line["worker"] = std::string(words[++i]);
      continue;
    }
    if (absl::StartsWith(words[i], "(") && i > 0) continue;  // a job's name
    int64_t number = 0;
    const bool is_name =
        words[i] == "job" || words[i] == "attempt" || words[i] == "rank" || words[i] == "incident";
    if (!is_name || !absl::SimpleAtoi(words[i + 1], &number)) return;
    line[std::string(words[i++])] = number;
  }
}

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto text = [](const spdlog::string_view_t& view) {
      return std::string_view(view.data(), view.size());
    };
    const int64_t unix_ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(message.time.time_since_epoch())
            .count();
    const std::string line =
        json_log_line(unix_ns, text(spdlog::level::to_string_view(message.level)),
                      text(message.logger_name), text(message.payload)) +
        "\n";
    out.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }
};

}  // namespace

std::string json_log_line(int64_t unix_ns, std::string_view level, std::string_view program,
                          std::string_view message) {
  const absl::Time time = absl::FromUnixNanos(unix_ns);
  nlohmann::ordered_json line = {
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone())},
      {"level", level},
      {"program", program},
      {"message", message}};
  add_subject(message, line);
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

absl::Status set_up_logging(std::string_view program, std::string_view level,
                            std::string_view format) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") {
    return absl::InvalidArgumentError(
        absl::StrCat("--log-level=", av(level.substr(0, 32)),
                     ": must be one of trace, debug, info, warning, error, off"));
  }
  if (format != "text" && format != "json") {
    return absl::InvalidArgumentError(
        absl::StrCat("--log-format=", av(format.substr(0, 32)), ": must be text or json"));
  }
  try {
    auto logger = std::make_shared<spdlog::logger>(
        std::string(program), std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_level(parsed);
    if (format == "json")
      logger->set_formatter(std::make_unique<JsonFormatter>());
    else
      logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %n: %v", spdlog::pattern_time_type::utc);
    logger->flush_on(spdlog::level::trace);
    spdlog::set_default_logger(std::move(logger));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("setting up the log: ", error.what()));
  }
  return absl::OkStatus();
}

}  // namespace muster::daemon
