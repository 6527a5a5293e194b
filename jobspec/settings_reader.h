// Typed access to settings. Keeps the first error, so that reading a config is a plain list of
// fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/settings.h"
#include "trainer_core/base/named_values.h"

namespace muster::jobspec {

class SettingsReader {
 public:
  explicit SettingsReader(const Settings& settings) : settings_(settings) {}

  // Each leaves `out` unchanged (its default) if the key is not set.
  void read(std::string_view key, std::string& out);
  void read(std::string_view key, bool& out);
  void read(std::string_view key, double& out);
  void read(std::string_view key, int64_t& out);
  void read(std::string_view key, int32_t& out);
  void read(std::string_view key, uint64_t& out);
  void read(std::string_view key, std::vector<std::string>& out);  // a list of words
  // Reads a word among `names`, which are in the enum's order; any other word is an error.
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
  // Null counts as unset.
  void read_optional(std::string_view key, int64_t& out);

  // True if a source other than base.yml has set the key.
  bool is_set_explicitly(std::string_view key) const;
  // True if the user has set the key: not base.yml or the model's file.
  bool is_set_by_user(std::string_view key) const;

  // Keeps InvalidArgument "key=value: `what`" if `holds` is false and there is no earlier error.
  void require(bool holds, std::string_view key, std::string_view what);
  const absl::Status& status() const { return status_; }

 private:
  void refuse_choice(std::string_view key, std::span<const std::string_view> names);

  const Settings& settings_;
  absl::Status status_;
};

}  // namespace muster::jobspec
