// Reads settings as typed values, and stores the first error, so that code which reads a config is
// a plain list of fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/settings/settings.h"
#include "trainer_core/base/named_values.h"

namespace muster::jobspec {

class SettingsReader {
 public:
  explicit SettingsReader(const Settings& settings) : settings_(settings) {}

  // Stores the value of `key` in `out`; leaves `out` unchanged if the key is not set.
  void read(std::string_view key, std::string& out);
  void read(std::string_view key, bool& out);
  void read(std::string_view key, double& out);
  void read(std::string_view key, int64_t& out);
  void read(std::string_view key, int32_t& out);
  void read(std::string_view key, uint64_t& out);
  void read(std::string_view key, std::vector<std::string>& out);  // reads a list of words
  // Reads a word and stores the enum value of that name. `names`: the names in the enum's order.
  // Any other word is an error.
  template <class Enum, size_t n>
  void read_choice(std::string_view key, const trainer::ValueNames<n>& names, Enum& out) {
    std::string name(trainer::name_of(names, out));
    read(key, name);
    const auto value = trainer::value_named<Enum>(names, name);
    if (value.has_value())
      out = *value;
    else
      refuse_choice(key, names);
  }
  // Reads an integer; null counts as unset.
  void read_optional(std::string_view key, int64_t& out);

  // Returns whether a source other than base.yml has set the key.
  bool is_set_explicitly(std::string_view key) const;
  // Returns whether the user has set the key, which means a source other than base.yml and the
  // model's file.
  bool is_set_by_user(std::string_view key) const;

  // Stores InvalidArgument "key=value: `what`" if `holds` is false and there is no earlier error.
  void require(bool holds, std::string_view key, std::string_view what);
  const absl::Status& status() const { return status_; }

 private:
  void refuse_choice(std::string_view key, std::span<const std::string_view> names);

  const Settings& settings_;
  absl::Status status_;
};

}  // namespace muster::jobspec
