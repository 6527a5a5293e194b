#include "cli/log_printer.h"

#include <algorithm>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/strip.h>
#include <nlohmann/json.hpp>

#include "cli/terminal.h"
#include "common/absl_view.h"

namespace muster::cli {
namespace {

// The number after `name` in `line`; nullopt when there is none.
std::optional<double> figure_after(absl::string_view line, absl::string_view name) {
  const size_t at = line.find(name);
  if (at == absl::string_view::npos) return std::nullopt;
  absl::string_view rest = line.substr(at + name.size());
  while (!rest.empty() && (rest.front() == ' ' || rest.front() == ':')) rest.remove_prefix(1);
  rest = rest.substr(0, rest.find_first_of(", \n"));
  double value = 0;
  if (!absl::SimpleAtod(rest, &value)) return std::nullopt;
  return value;
}

}  // namespace

std::optional<StepLine> parse_step_line(std::string_view text) {
  absl::string_view line = av(text);
  if (!absl::ConsumePrefix(&line, "completed step: ")) return std::nullopt;
  StepLine parsed;
  if (!absl::SimpleAtoi(line.substr(0, line.find(',')), &parsed.step)) return std::nullopt;
  const auto loss = figure_after(line, ", loss");
  if (!loss) return std::nullopt;
  parsed.loss = *loss;
  parsed.tokens_per_second = figure_after(line, "Tokens/s/device").value_or(0);
  return parsed;
}

// The bar needs the whole terminal: with output in a file it would only disturb what is on stderr.
LogPrinter::LogPrinter(LogPrinterOptions options)
    : options_(options),
      bar_(takes_escapes(options.output_fd) && options.steps > 0 ? options.news_fd : -1, "",
           monotonic_now()) {
  if (bar_.on_terminal()) bar_.update({.label = "before the first step"}, monotonic_now());
}

bool LogPrinter::take(const v1::LogChunk& chunk) {
  const std::lock_guard lock(mutex_);
  const Part part{chunk.attempt(), chunk.rank()};
  uint64_t& seen = seen_[part];
  const uint64_t end = chunk.offset() + chunk.data().size();
  if (end <= seen) return writable_;
  std::string_view data = chunk.data();
  if (chunk.offset() < seen) data.remove_prefix(static_cast<size_t>(seen - chunk.offset()));
  seen = end;
  std::string& partial = partial_[part];
  bar_.hide();
  while (!data.empty()) {
    const size_t newline = data.find('\n');
    const size_t taken = newline == std::string_view::npos ? data.size() : newline;
    partial.append(data.substr(0, taken));
    data.remove_prefix(std::min(taken + 1, data.size()));
    if (newline == std::string_view::npos && partial.size() < kLineBytesMax) break;
    print_line(part, partial);
    partial.clear();
  }
  bar_.show();
  return writable_;
}

bool LogPrinter::print_line(const Part& part, std::string_view line) {
  const auto [attempt, rank] = part;
  if (options_.json) {
    const nlohmann::json object = {{"attempt", attempt}, {"rank", rank}, {"line", line}};
    // A rank writes what it likes, which need not be UTF-8.
    const std::string text = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    writable_ = write_text(options_.output_fd, text + "\n") && writable_;
  } else {
    print_as_it_is(rank, line);
  }
  if (rank == std::max(options_.main_rank, 0)) follow_steps(line);
  return writable_;
}

void LogPrinter::print_as_it_is(int32_t rank, std::string_view line) {
  if (rank == options_.main_rank) {
    writable_ = write_text(options_.output_fd, absl::StrCat(av(line), "\n")) && writable_;
  } else if (options_.main_rank < 0) {
    writable_ =
        write_text(options_.output_fd, absl::StrCat("[rank ", rank, "] ", av(line), "\n")) &&
        writable_;
  } else {
    write_text(options_.news_fd, absl::StrCat("[rank ", rank, "] ", av(line), "\n"));
  }
}

void LogPrinter::follow_steps(std::string_view line) {
  if (options_.steps <= 0 || !bar_.on_terminal()) return;
  const auto step = parse_step_line(line);
  if (!step) return;
  const Instant now = monotonic_now();
  // An attempt that began again at an earlier step has a pace of its own.
  if (first_step_ < 0 || step->step < first_step_) {
    first_step_ = step->step;
    first_step_at_ = now;
  }
  const double seen = static_cast<double>(step->step - first_step_);
  const double left = static_cast<double>(options_.steps - step->step - 1);
  bar_.update(
      {.label = absl::StrCat("step ", step->step + 1, "/", options_.steps),
       .fraction = static_cast<double>(step->step + 1) / static_cast<double>(options_.steps),
       .seconds_left = seen > 0 ? to_seconds(now - first_step_at_) / seen * left : -1,
       .note = absl::StrFormat("loss %.3f  %s tokens/s", step->loss,
                               format_count(step->tokens_per_second * options_.ranks))},
      now);
}

void LogPrinter::news(std::string_view message) {
  const std::lock_guard lock(mutex_);
  bar_.hide();
  write_text(options_.news_fd,
             absl::StrCat(coloured(options_.news_fd, Colour::kDim, "muster: "), av(message), "\n"));
  bar_.show();
}

void LogPrinter::finish() {
  const std::lock_guard lock(mutex_);
  bar_.hide();
  for (auto& [part, text] : partial_) {
    if (!text.empty()) print_line(part, text);
    text.clear();
  }
}

}  // namespace muster::cli
