#include "cli/jobs/log_printer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/strip.h>
#include <nlohmann/json.hpp>

#include "cli/terminal/terminal.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"

namespace muster::cli {
namespace {

// Bound for back-pressure: the coordinator keeps the rest.
constexpr size_t kLogBytesMax = 1 << 20;
// A job has a few notices a minute: only a reader that pauses for long loses some.
constexpr int kNoticesMax = 256;
constexpr std::chrono::milliseconds kPoll(200);
constexpr char kStepPrefix[] = "completed step: ";
// A person follows a progress bar at this pace, and a file of it stays short.
constexpr Duration kStateInterval = std::chrono::seconds(1);
// An incomplete line that stays so for this long is a question, or a row of dots.
constexpr Duration kIncompleteAge = std::chrono::milliseconds(300);

// Returns the number after `name` in `line`; nullopt when there is none.
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

// Returns whether both are the same file or pipe, or show their text on a screen.
bool share_a_place(const Output& a, const Output& b) {
  if (isatty(a.fd()) == 1 && isatty(b.fd()) == 1) return true;
  struct stat of_a {};
  struct stat of_b {};
  return fstat(a.fd(), &of_a) == 0 && fstat(b.fd(), &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
         of_a.st_ino == of_b.st_ino;
}

}  // namespace

std::optional<StepLine> parse_step_line(std::string_view text) {
  absl::string_view line = av(text);
  if (!absl::ConsumePrefix(&line, kStepPrefix)) return std::nullopt;
  StepLine parsed;
  if (!absl::SimpleAtoi(line.substr(0, line.find(',')), &parsed.step)) return std::nullopt;
  const auto loss = figure_after(line, ", loss");
  if (!loss) return std::nullopt;
  parsed.loss = *loss;
  parsed.tokens_per_second = figure_after(line, "Tokens/s/device").value_or(0);
  return parsed;
}

// The bar needs the whole terminal: with output in a file it would clutter stderr.
LogPrinter::LogPrinter(Output& output, Output& notice, LogPrinterOptions options)
    : options_(options),
      output_(output),
      notices_(notice),
      share_a_place_(share_a_place(output, notice)),
      thins_steps_(options.thin_steps && !options.json && isatty(output.fd()) == 1) {
  if (options.steps > 0 && takes_escapes(output.fd()) && takes_escapes(notice.fd())) {
    bar_.emplace(notice, "", monotonic_now());
  }
  printer_ = std::jthread([this](const std::stop_token& stop) { print_all(stop); });
}

LogPrinter::~LogPrinter() { finish(); }

bool LogPrinter::take(const v1::LogChunk& chunk) {
  std::unique_lock lock(mutex_);
  printed_.wait(lock, [&] { return log_bytes_ < kLogBytesMax || is_given_up_; });
  if (is_given_up_) return false;
  log_bytes_ += chunk.data().size();
  queue_.emplace_back(chunk);
  put_.notify_all();
  return is_writable_;
}

void LogPrinter::notice(std::string_view message) {
  const std::lock_guard lock(mutex_);
  if (notices_waiting_ >= kNoticesMax) return;
  ++notices_waiting_;
  queue_.emplace_back(Notice{std::string(message)});
  put_.notify_all();
}

void LogPrinter::finish() {
  std::unique_lock lock(mutex_);
  queue_.emplace_back(LastLines());
  put_.notify_all();
  printed_.wait(lock, [&] { return queue_.empty(); });
}

bool LogPrinter::is_behind() const {
  const std::lock_guard lock(mutex_);
  return !queue_.empty();
}

void LogPrinter::hurry() {
  output_.hurry();
  notices_.hurry();
}

void LogPrinter::give_up() {
  hurry();
  // without it, a wait that has just checked the flag would miss the notification
  const std::lock_guard lock(mutex_);
  is_given_up_ = true;
  printed_.notify_all();
}

void LogPrinter::print_all(const std::stop_token& stop) {
  if (bar_) bar_->update({.label = "before the first step"}, monotonic_now());
  std::unique_lock lock(mutex_);
  const auto has_work = [&] { return !queue_.empty(); };
  while (!waits_for_time() ? put_.wait(lock, stop, has_work)
                           : put_.wait_for(lock, stop, kPoll, has_work) || !stop.stop_requested()) {
    if (queue_.empty()) {  // lines wait for other ranks, or states for their time
      lock.unlock();
      print(merger_.due(monotonic_now()));
      show_due_states(monotonic_now());
      lock.lock();
      continue;
    }
    // The front element does not move while other threads append.
    const Item& item = queue_.front();
    lock.unlock();
    std::visit([this](const auto& what) { print(what); }, item);
    lock.lock();
    if (const auto* chunk = std::get_if<v1::LogChunk>(&item)) log_bytes_ -= chunk->data().size();
    if (std::holds_alternative<Notice>(item)) --notices_waiting_;
    queue_.pop_front();
    printed_.notify_all();
  }
}

void LogPrinter::print(const v1::LogChunk& chunk) {
  job_ = chunk.job_id();
  const Part part{chunk.attempt(), chunk.rank()};
  uint64_t& seen = seen_[part];
  const uint64_t end = chunk.offset() + chunk.data().size();
  if (end <= seen) return;
  std::string_view data = chunk.data();
  if (chunk.offset() < seen) data.remove_prefix(static_cast<size_t>(seen - chunk.offset()));
  seen = end;
  RankLines& lines = partial_[part];
  if (bar_) bar_->hide();
  const uint64_t replaced = lines.states.account().replaced;
  bool was_new = lines.is_new;
  for (const std::string& line : lines.states.add(data, kLineBytesMax)) {
    if (!is_given_up_) print_line(part, chunk.unix_ns(), line);
    lines.shown.clear();
    was_new = false;
  }
  replaced_ += lines.states.account().replaced - replaced;
  lines.is_new = !is_blank(lines.states.state()) && lines.states.state() != lines.shown;
  lines.changed_at = monotonic_now();
  if (!was_new) lines.new_since = lines.changed_at;
  show_due_states(lines.changed_at);
  if (bar_) bar_->show();
}

bool LogPrinter::waits_for_time() const {
  const auto waits = [](const auto& part) { return part.second.is_new; };
  return !merger_.empty() ||
         (options_.live && std::any_of(partial_.begin(), partial_.end(), waits));
}

bool LogPrinter::is_state_due(const Part& part, const RankLines& lines, Instant now) const {
  if (!lines.is_new || now - lines.shown_at < kStateInterval) return false;
  if (lines.states.was_replaced()) return true;
  // A step's line that is thinned out is not shown in parts.
  const bool is_step = part.second == options_.main_rank && thins_steps_ &&
                       lines.states.state().starts_with(kStepPrefix);
  // A row of dots may grow all the time.
  return !is_step &&
         (now - lines.changed_at >= kIncompleteAge || now - lines.new_since >= kStateInterval);
}

void LogPrinter::show_due_states(Instant now) {
  if (!options_.live || is_given_up_) return;
  for (auto& [part, lines] : partial_) {
    if (!is_state_due(part, lines, now)) continue;
    lines.shown = lines.states.state();
    lines.shown_at = now;
    lines.is_new = false;
    show_state(part, lines.shown);
  }
}

void LogPrinter::show_state(const Part& part, std::string_view state) {
  const auto [attempt, rank] = part;
  if (options_.json) {
    const nlohmann::json object = {{"job", job_},
                                   {"attempt", attempt},
                                   {"rank", rank},
                                   {"line", without_escapes(state)},
                                   {"partial", true}};
    print_to(output_, object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (rank == options_.main_rank && !bar_) {
    print_open(part, state, /*ends=*/false);
  } else if (rank == options_.main_rank) {
    print_to(output_, state);
  } else {
    print_to(options_.main_rank < 0 ? output_ : notices_,
             absl::StrCat("[rank ", rank, "] ", av(state)));
  }
}

// Writes the main rank's incomplete line, or its rest: on a terminal in the place of what it
// replaces.
void LogPrinter::print_open(const Part& part, std::string_view line, bool ends) {
  const bool is_screen = isatty(output_.fd()) == 1;
  std::string text = is_screen ? for_terminal(line, takes_colour(output_.fd())) : std::string(line);
  const auto width = static_cast<size_t>(terminal_width(output_.fd()));
  // A longer state would take several rows, of which only the last one is replaced.
  if (is_screen && !ends && partial_[part].states.was_replaced() &&
      columns(without_escapes(text)) >= width)
    text = shorten(without_escapes(text), width - 1);
  std::string written = text;
  if (open_ && open_->part == part) {
    if (text.starts_with(open_->text)) {
      written = text.substr(open_->text.size());
    } else {
      written.insert(0, takes_escapes(output_.fd()) ? "\r\x1b[K" : "\n");
    }
  } else {
    close_open_line();
  }
  if (!output_.write(written + (ends ? "\n" : ""))) is_writable_ = false;
  open_.reset();
  if (!ends) open_ = OpenLine{part, std::move(text)};
}

void LogPrinter::close_open_line() {
  if (open_ && !output_.write("\n")) is_writable_ = false;
  open_.reset();
}

// A line of one file does not end because something is written to another one.
void LogPrinter::close_open_line_before(const Output& output) {
  if (&output == &output_ || share_a_place_) close_open_line();
}

void LogPrinter::report_replaced() {
  if (replaced_ == 0) return;
  print(Notice{absl::StrCat(replaced_, replaced_ == 1 ? " earlier state" : " earlier states",
                            " of lines with carriage returns (progress bars) were replaced; the "
                            "ranks' log files have them")});
  replaced_ = 0;
}

void LogPrinter::print(const Notice& notice) {
  if (bar_) bar_->hide();
  close_open_line_before(notices_);
  notices_.write(absl::StrCat(coloured(notices_.fd(), Colour::kDim, "muster: "),
                              escape_controls(notice.text), "\n"));
  if (bar_) bar_->show();
}

bool StepThinning::shows(Instant now) {
  if (last_ != Instant{})
    allowance_ = std::min(kBurst, allowance_ + to_seconds(now - last_) * kPerSecond);
  last_ = now;
  if (allowance_ < 1) return false;
  allowance_ -= 1;
  return true;
}

bool LogPrinter::is_thinned_out(int32_t rank, std::string_view line) {
  if (!thins_steps_ || rank != options_.main_rank) return false;
  if (!parse_step_line(line)) {
    // An evaluation, or whatever follows a step, stands below the step's line.
    if (!newest_hidden_.empty()) print_to(output_, newest_hidden_);
    newest_hidden_.clear();
    return false;
  }
  newest_hidden_.clear();
  if (thinning_.shows(monotonic_now())) return false;
  if (hidden_++ == 0) {
    close_open_line_before(notices_);
    notices_.write(
        absl::StrCat(coloured(notices_.fd(), Colour::kDim, "muster: "),
                     "the steps are fast: this terminal shows some of their lines; a file "
                     "or pipe gets all (muster run … | cat)\n"));
  }
  newest_hidden_ = line;
  return true;
}

void LogPrinter::print(LastLines) {
  bar_.reset();
  if (!newest_hidden_.empty()) print_to(output_, std::exchange(newest_hidden_, {}));
  for (auto& [part, lines] : partial_) {
    const uint64_t replaced = lines.states.account().replaced;
    const std::vector<std::string> texts = lines.states.finish();
    replaced_ += lines.states.account().replaced - replaced;
    for (const std::string& text : texts) print_line(part, 0, text);
    lines.shown.clear();
    lines.is_new = false;
  }
  print(merger_.flush());
  close_open_line();
  report_replaced();
}

void LogPrinter::print(const std::vector<MergedLine>& lines) {
  for (const MergedLine& line : lines) {
    const int64_t ranks = line.ranks.size();
    const std::string origin = ranks == 1
                                   ? absl::StrCat("rank ", line.ranks.text())
                                   : absl::StrCat("× ", ranks, " ranks: ", line.ranks.text(4));
    print_to(output_, absl::StrCat("[", origin, "] ", line.text));
  }
}

void LogPrinter::print_line(const Part& part, int64_t unix_ns, std::string_view line) {
  const auto [attempt, rank] = part;
  // The last state of a line was shown already, with its end.
  const bool was_shown = !line.empty() && partial_[part].shown == line;
  if (options_.json) {
    nlohmann::json object = {
        {"job", job_}, {"attempt", attempt}, {"rank", rank}, {"line", without_escapes(line)}};
    if (unix_ns > 0) object["unix_ns"] = unix_ns;
    // A rank's output need not be UTF-8.
    print_to(output_, object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (is_thinned_out(rank, line)) {
    // hidden
  } else if (open_ && open_->part == part) {
    print_open(part, line, /*ends=*/true);
  } else if (was_shown) {
    // nothing is new
  } else if (rank == options_.main_rank) {
    print_to(output_, line);
  } else if (options_.main_rank < 0 && options_.merge) {
    print(merger_.add(attempt, rank, unix_ns, line, monotonic_now()));
  } else {
    print_to(options_.main_rank < 0 ? output_ : notices_,
             absl::StrCat("[rank ", rank, "] ", av(line)));
  }
  if (rank == std::max(options_.main_rank, 0)) follow_steps(line);
}

void LogPrinter::print_to(Output& output, std::string_view line) {
  close_open_line_before(output);
  // A program receives the bytes; a terminal gets colours and must not execute a rank's other
  // control sequences.
  const std::string text =
      isatty(output.fd()) == 1 ? for_terminal(line, takes_colour(output.fd())) : std::string(line);
  if (!output.write(text + "\n") && &output == &output_) is_writable_ = false;
}

void LogPrinter::follow_steps(std::string_view line) {
  if (!bar_) return;
  const auto step = parse_step_line(line);
  if (!step) return;
  const Instant now = monotonic_now();
  // An attempt that restarted from an earlier step has its own pace.
  if (first_step_ < 0 || step->step < first_step_) {
    first_step_ = step->step;
    first_step_at_ = now;
  }
  const double seen = static_cast<double>(step->step - first_step_);
  const double left = static_cast<double>(options_.steps - step->step - 1);
  bar_->update(
      {.label = absl::StrCat("step ", step->step + 1, "/", options_.steps),
       .fraction = static_cast<double>(step->step + 1) / static_cast<double>(options_.steps),
       .seconds_left = seen > 0 ? to_seconds(now - first_step_at_) / seen * left : -1,
       .note = absl::StrFormat("loss %.3f  %s tokens/s", step->loss,
                               format_count(step->tokens_per_second * options_.ranks))},
      now);
}

}  // namespace muster::cli
