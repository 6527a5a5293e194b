// Parses rclone's output on standard error. Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace muster::rclone {

// Removes the lines about single objects from the output of a copy, because names of objects may
// contain the words of errors. Returns whether an object was copied.
bool take_copied(std::string& errors);

// Returns the first error, without time and prefix, followed by its cause if there is one.
std::string cause_of(const std::string& errors);

// Returns why the store could not be reached, such as "connection refused"; empty if it answered.
std::string why_unreachable(const std::string& errors);

// Returns the number of sent bytes in a line of the statistics; nullopt for other lines.
std::optional<uint64_t> sent_bytes(std::string_view line);

// Reads output that arrives in pieces, and calls a meter with the sent bytes of each line of the
// statistics.
class StatsReader {
 public:
  using Meter = std::function<void(uint64_t bytes)>;
  // `meter` must outlive this object.
  explicit StatsReader(const Meter& meter) : meter_(meter) {}

  void add(std::string_view text);

 private:
  const Meter& meter_;
  std::string rest_;
};

}  // namespace muster::rclone
