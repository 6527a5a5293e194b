// The position of a standard input before its first reader, so that a later reader can detect
// whether an earlier one has taken what it needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

// A value that another process can parse.
class InputMark {
 public:
  // Marks the present state of the input. Consumes nothing.
  static InputMark of(int fd);
  // Marks the pipe that passes on what is typed at a terminal: its lines answer questions of the
  // present, and its end may be a hang-up, which must not stop a job.
  static InputMark of_terminal() { return {Kind::kUnimportant, 0}; }
  // Parses the result of text(); nullopt: another text.
  static std::optional<InputMark> parse(std::string_view text);
  std::string text() const;

  // Returns where a file began; nullopt for other inputs.
  std::optional<int64_t> position() const;
  // Returns whether the input is a pipe or a socket that had not ended: what one reader takes,
  // another one does not get.
  bool is_stream() const { return kind_ == Kind::kStream; }
  // Returns whether no reader has had the stream yet; after_reader() is the mark for later ones.
  bool is_unread() const { return is_stream() && value_ == kUnread; }
  InputMark after_reader() const { return is_stream() ? InputMark(kind_, 0) : *this; }
  // Returns whether such an input has ended since: a new reader would find nothing.
  bool is_lost(int fd) const;

 private:
  enum class Kind {
    kFile,         // value: the position
    kStream,       // a pipe or socket that has data, or may get some; value: kUnread, or 0
    kUnimportant,  // the others: readers find the same, or do not depend on it
  };
  static constexpr int64_t kUnread = 1;
  InputMark(Kind kind, int64_t value) : kind_(kind), value_(value) {}

  Kind kind_;
  int64_t value_;
};

}  // namespace muster
