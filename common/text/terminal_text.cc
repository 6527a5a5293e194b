#include "common/text/terminal_text.h"

#include <algorithm>
#include <utility>

#include "common/text/escape.h"

namespace muster {
namespace {

constexpr char kEscape = '\x1b';
constexpr char kBell = '\x07';
constexpr std::string_view kReset = "\x1b[0m";
// The largest string of a sequence.
constexpr size_t kSequenceBytesMax = 4096;

bool is_in(char c, char first, char last) { return c >= first && c <= last; }

// Returns the length of a CSI sequence: parameters, intermediate bytes and a final byte.
size_t control_sequence_bytes(std::string_view text) {
  size_t at = 2;
  while (at < text.size() && is_in(text[at], '\x30', '\x3F')) ++at;
  while (at < text.size() && is_in(text[at], '\x20', '\x2F')) ++at;
  if (at == text.size()) return at;
  return is_in(text[at], '\x40', '\x7E') ? at + 1 : at;
}

// Returns the length of a string sequence, which BEL or ESC \ ends. Of one without its end only the
// introducer counts: what follows may be text.
size_t string_sequence_bytes(std::string_view text) {
  for (size_t at = 2; at < std::min(text.size(), kSequenceBytesMax); ++at) {
    if (text[at] == kBell) return at + 1;
    if (text[at] == kEscape) return at + 1 < text.size() && text[at + 1] == '\\' ? at + 2 : 2;
  }
  return 2;
}

// Returns the length of the sequence at the start of `text`, which begins with an escape.
size_t sequence_bytes(std::string_view text) {
  if (text.size() < 2) return text.size();
  switch (text[1]) {
    case '[':
      return control_sequence_bytes(text);
    case ']':
    case 'P':
    case 'X':
    case '^':
    case '_':
      return string_sequence_bytes(text);
    default:
      break;
  }
  size_t at = 1;
  while (at < text.size() && is_in(text[at], '\x20', '\x2F')) ++at;
  return at < text.size() && is_in(text[at], '\x30', '\x7E') ? at + 1 : at;
}

bool has_only(std::string_view text, std::string_view allowed) {
  return text.find_first_not_of(allowed) == std::string_view::npos;
}

// Returns whether a sequence sets colours or weight: "\x1b[1;31m".
bool is_colour(std::string_view sequence) {
  return sequence.starts_with("\x1b[") && sequence.ends_with('m') &&
         has_only(sequence.substr(2, sequence.size() - 3), "0123456789;:");
}

// Returns whether a sequence moves within a progress bar: it is meaningless where lines are
// printed.
bool is_bars(std::string_view sequence) {
  if (sequence == "\x1b[?25l" || sequence == "\x1b[?25h") return true;
  return sequence.size() > 2 && sequence.starts_with("\x1b[") &&
         std::string_view("KABGCD").find(sequence.back()) != std::string_view::npos &&
         has_only(sequence.substr(2, sequence.size() - 3), "0123456789");
}

// Calls text(part) and sequence(part) for the parts of `all`, in order.
template <class Text, class Sequence>
void for_each_part(std::string_view all, const Text& text, const Sequence& sequence) {
  while (!all.empty()) {
    const size_t plain = std::min(all.find(kEscape), all.size());
    if (plain > 0) text(all.substr(0, plain));
    all.remove_prefix(plain);
    if (all.empty()) return;
    const size_t size = sequence_bytes(all);
    sequence(all.substr(0, size));
    all.remove_prefix(size);
  }
}

}  // namespace

std::string without_escapes(std::string_view text) {
  std::string out;
  for_each_part(
      text, [&](std::string_view part) { out += part; }, [](std::string_view) {});
  return out;
}

std::string for_terminal(std::string_view text, bool colours) {
  std::string out;
  bool is_coloured = false;
  for_each_part(
      text, [&](std::string_view part) { out += escape_controls(part); },
      [&](std::string_view part) {
        if (is_colour(part)) {
          if (colours) out += part;
          is_coloured = colours;
        } else if (!is_bars(part)) {
          out += escape_controls(part);
        }
      });
  if (is_coloured) out += kReset;
  return out;
}

bool is_blank(std::string_view text) {
  bool blank = true;
  for_each_part(
      text, [&](std::string_view part) { blank = blank && has_only(part, " \t\r"); },
      [](std::string_view) {});
  return blank;
}

std::string_view last_state(std::string_view line) {
  std::string_view rest = line;
  while (true) {
    const size_t at = rest.rfind('\r');
    const std::string_view state = at == std::string_view::npos ? rest : rest.substr(at + 1);
    if (!is_blank(state)) return state;
    if (at == std::string_view::npos) return line.substr(line.rfind('\r') + 1);
    rest = rest.substr(0, at);
  }
}

std::string printable_end(std::string_view text, size_t bytes_max) {
  constexpr std::string_view kCut = "…";
  const std::string plain = without_escapes(text);
  // Each byte becomes up to four: room for all of the end.
  const size_t from = plain.size() > bytes_max ? plain.size() - bytes_max : 0;
  std::string line = printable(std::string_view(plain).substr(from), 4 * bytes_max + kCut.size());
  if (from == 0 && line.size() <= bytes_max) return line;
  size_t cut = line.size() - std::min(line.size(), bytes_max - kCut.size());
  // Not within a character.
  while (cut < line.size() && (static_cast<uint8_t>(line[cut]) & 0xC0) == 0x80) ++cut;
  return std::string(kCut) + line.substr(cut);
}

namespace {

// More rows of progress bars are one row.
constexpr size_t kRowsMax = 16;
// The letters that complete a sequence which moves the cursor to another state's place: up, down,
// to the next or previous line's start, to a column.
constexpr std::string_view kMoves = "ABEFG";
constexpr size_t kMoveDigitsMax = 3;

// Returns the number of a sequence "\x1b[NUMBER" at the end of `text`, 1 without digits; -1 if
// there is no such sequence.
int number_of_sequence(std::string_view text) {
  size_t digits = 0;
  while (digits < std::min(text.size(), kMoveDigitsMax) &&
         is_in(text[text.size() - 1 - digits], '0', '9'))
    ++digits;
  if (!text.substr(0, text.size() - digits).ends_with("\x1b[")) return -1;
  int number = digits == 0 ? 1 : 0;
  for (const char digit : text.substr(text.size() - digits)) number = 10 * number + (digit - '0');
  return number;
}

// Returns whether a letter behind `text` ends its state.
bool moves(std::string_view text, char letter) {
  const int number = number_of_sequence(text);
  return letter == 'G' ? number == 0 || number == 1 : number >= 0;
}

// Returns where the state, of which `before` is the part so far, ends in `data`; data.size() if it
// does not.
size_t end_of_state(std::string_view before, std::string_view data) {
  constexpr size_t kStartBytes = 2 + kMoveDigitsMax;  // length without the last byte
  for (size_t from = 0;;) {
    const size_t at = data.find_first_of("\r\n\bABEFG", from);
    if (at == std::string_view::npos) return data.size();
    if (kMoves.find(data[at]) == std::string_view::npos) return at;
    // Most letters are text.
    const char last = at > 0 ? data[at - 1] : before.empty() ? '\0' : before.back();
    if (last == '[' || is_in(last, '0', '9')) {
      std::string start(before.substr(before.size() - std::min(before.size(), kStartBytes)));
      start += data.substr(0, at).substr(at - std::min(at, kStartBytes));
      if (moves(start, data[at])) return at;
    }
    from = at + 1;
  }
}

}  // namespace

size_t LineStates::pending_bytes() const {
  size_t bytes = current_.size() + shown_.size();
  for (const std::string& row : rows_) bytes += row.size();
  return bytes;
}

void LineStates::move_to(size_t row) {
  row = std::min(row, kRowsMax);
  rows_.resize(std::max(rows_.size(), std::max(row, row_) + 1));
  rows_[row_] = std::move(shown_);
  shown_ = std::move(rows_[row]);
  rows_[row].clear();
  row_ = row;
}

// Executes the movement of which current_ has the sequence without its last letter.
void LineStates::obey(char letter) {
  const auto rows = static_cast<size_t>(number_of_sequence(current_));
  current_ += letter;
  if (letter == 'B' && row_ == 0) return;  // the cursor cannot move
  end_state();
  // As for a terminal, 0 means 1.
  if (letter == 'A' || letter == 'F') move_to(row_ + std::max<size_t>(rows, 1));
  if ((letter == 'B' || letter == 'E') && row_ > 0)
    move_to(row_ - std::min(row_, std::max<size_t>(rows, 1)));
}

void LineStates::go_back() {
  size_t left = current_.size();
  for (; back_ > 0 && left > 0; --back_) {
    do --left;
    while (left > 0 && (static_cast<uint8_t>(current_[left]) & 0xC0) == 0x80);
  }
  back_ = 0;
  // Sequences have no width: where they are, characters cannot be counted as bytes.
  const std::string_view stays = std::string_view(current_).substr(0, left);
  if (is_blank(stays) || current_.find(kEscape) != std::string::npos) return end_state();
  if (!is_blank(std::string_view(current_).substr(left))) ++account_.replaced;
  account_.replaced_bytes += current_.size() - left;
  current_.resize(left);
}

void LineStates::end_state() {
  if (is_blank(current_)) {
    account_.replaced_bytes += current_.size();
  } else {
    if (!shown_.empty()) ++account_.replaced;
    account_.replaced_bytes += shown_.size();
    shown_ = current_;
    newest_ = row_;
  }
  current_.clear();
  back_ = 0;
  has_return_ = true;
}

std::string LineStates::end_line() {
  const bool keeps_current = shown_.empty() || !is_blank(current_);
  std::string line = std::move(keeps_current ? current_ : shown_);
  const std::string& other = keeps_current ? shown_ : current_;
  if (keeps_current && !other.empty()) ++account_.replaced;
  account_.replaced_bytes += other.size();
  account_.kept_bytes += line.size();
  ++account_.lines;
  current_.clear();
  shown_.clear();
  back_ = 0;
  has_return_ = false;
  return line;
}

// Ends the rows above the last one, and the last one. Requires that the cursor is there.
void LineStates::end_rows(std::vector<std::string>& lines) {
  for (size_t row = rows_.size(); row-- > 1;) {
    if (rows_[row].empty()) continue;
    account_.kept_bytes += rows_[row].size();
    ++account_.lines;
    lines.push_back(std::move(rows_[row]));
  }
  rows_.clear();
  newest_ = 0;
  lines.push_back(end_line());
}

std::vector<std::string> LineStates::add(std::string_view data, size_t line_bytes_max) {
  std::vector<std::string> lines;
  while (!data.empty()) {
    if (back_ > 0 && std::string_view("\b\r\n").find(data.front()) == std::string_view::npos)
      go_back();
    const size_t room = line_bytes_max - std::min(line_bytes_max, current_.size());
    const size_t end = end_of_state(current_, data);
    const size_t taken = std::min(end, room);
    current_ += data.substr(0, taken);
    data.remove_prefix(taken);
    if (current_.size() >= line_bytes_max && taken < end) {
      lines.push_back(end_line());
      continue;
    }
    if (data.empty()) break;
    if (data.front() == '\n' && row_ > 0) {
      end_state();
      move_to(row_ - 1);
    } else if (data.front() == '\n') {
      end_rows(lines);
    } else if (data.front() == '\b') {
      ++back_;
      has_return_ = true;
    } else if (kMoves.find(data.front()) != std::string_view::npos) {
      // The sequence stays in the text, as the others do.
      obey(data.front());
      data.remove_prefix(1);
      continue;
    } else {
      end_state();
    }
    ++account_.ends;
    data.remove_prefix(1);
  }
  return lines;
}

std::string_view LineStates::state() const {
  if (!is_blank(current_)) return current_;
  if (newest_ != row_ && newest_ < rows_.size() && !rows_[newest_].empty()) return rows_[newest_];
  return shown_.empty() ? current_ : shown_;
}

std::vector<std::string> LineStates::finish() {
  std::vector<std::string> lines;
  if (row_ > 0) {
    end_state();
    move_to(0);
  }
  if (pending_bytes() == 0) {
    rows_.clear();
    return lines;
  }
  end_rows(lines);
  // Rows above the last one may have ended without it.
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace muster
