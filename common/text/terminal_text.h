// The output of programs that write for a terminal: escape sequences, and lines that carriage
// returns replace, as progress bars have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

// Returns `text` without escape sequences: colours, cursor movements, titles of windows (ECMA-48's
// CSI, OSC, DCS, SOS, PM, APC and two-character sequences). Other control characters stay.
std::string without_escapes(std::string_view text);

// Returns `text` for a terminal: with its colours (SGR) if `colours`, otherwise without; without
// the movements of a progress bar within its line (erase to the end, up, down, column, the cursor's
// visibility). Every other control character is escaped as by escape_controls(): a rank must not
// clear the screen, set titles or answer for the user. Ends with a reset if a colour is in it.
std::string for_terminal(std::string_view text, bool colours);

// Returns whether `text` shows nothing: blanks and escape sequences only.
bool is_blank(std::string_view text);

// Returns the state in which a line ends: the text behind its last carriage return, or the last one
// that shows something.
std::string_view last_state(std::string_view line);

// Returns the end of `text` as one line of valid UTF-8 without escape sequences, of at most
// `bytes_max` bytes; a cut is marked by "…" in front. Requires bytes_max >= 3.
std::string printable_end(std::string_view text, size_t bytes_max);

// Divides output into lines, and lines into states: a carriage return, or the sequence "\x1b[1G",
// ends a state, and the next one replaces it. Backspaces replace a state's last characters. Of a
// line only its last state is kept. Sequences that move the cursor up, as nested progress bars
// have, begin new states of the rows above: these rows are lines once a newline leaves the last
// row. Not thread-safe.
class LineStates {
 public:
  // Accounts for every byte of the output.
  struct OutputCounts {
    uint64_t lines = 0;
    uint64_t kept_bytes = 0;      // in lines
    uint64_t replaced = 0;        // states that showed something and were replaced
    uint64_t replaced_bytes = 0;  // in replaced and blank states
    uint64_t ends = 0;            // carriage returns, backspaces and newlines
  };

  // Returns the lines that are complete with `data`. A line of more than `line_bytes_max` bytes
  // counts as several: memory stays bounded.
  std::vector<std::string> add(std::string_view data, size_t line_bytes_max);
  // Returns the newest state of the incomplete lines.
  std::string_view state() const;
  // Whether the incomplete line has had another state.
  bool was_replaced() const { return has_return_; }
  // Ends the incomplete lines and returns their last states.
  std::vector<std::string> finish();

  const OutputCounts& account() const { return account_; }
  // Bytes of the incomplete lines that are in memory.
  size_t pending_bytes() const;

 private:
  void end_state();
  void go_back();
  void move_to(size_t row);
  void obey(char letter);
  std::string end_line();
  void end_rows(std::vector<std::string>& lines);

  std::string current_;  // behind the last end of a state
  std::string shown_;    // the last state before it that shows something
  size_t back_ = 0;      // backspaces behind current_, which the next character obeys
  size_t row_ = 0;       // the cursor's, counted upwards from the last one
  size_t newest_ = 0;    // the row of the newest state
  // The last states of the other rows since the cursor was above the last one; "": none.
  std::vector<std::string> rows_;
  bool has_return_ = false;
  OutputCounts account_;
};

}  // namespace muster
