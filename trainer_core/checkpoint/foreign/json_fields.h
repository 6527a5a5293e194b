// Typed access to JSON that describes a model of another program.
#pragma once

#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/text/absl_view.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/base/model_config.h"

namespace muster::trainer {

// The smallest epsilon of a norm.
constexpr double kEpsilonMin = std::numeric_limits<float>::denorm_min();

// Reads the fields of an object by type. Stores the first error, such as "hidden_size is \"wide\",
// but must be …", in status(). Requires that the object outlives the reader.
class JsonFields {
 public:
  explicit JsonFields(const nlohmann::json& config) : config_(config) {}

  // Return whether a field exists and is not null (has), or exists and is null (is_null). All other
  // functions treat null as an absent field.
  bool has(std::string_view name) const { return contains(name) && !at(name).is_null(); }
  bool is_null(std::string_view name) const { return contains(name) && at(name).is_null(); }

  // Stores a positive integer. An absent field is an error.
  void size(std::string_view name, int32_t& out) {
    if (!has(name)) return fail(name, "missing");
    optional_size(name, out);
  }
  // Stores a positive integer; an absent field leaves `out` unchanged.
  void optional_size(std::string_view name, int32_t& out) {
    if (!has(name)) return;
    const nlohmann::json& value = at(name);
    if (!value.is_number_integer() || value < 1 || value > std::numeric_limits<int32_t>::max()) {
      return fail(name, absl::StrCat(show_json(value), ", but must be a positive whole number"));
    }
    out = value.get<int32_t>();
  }
  // Stores a number of at least `least`. An absent field is an error.
  void number(std::string_view name, double least, double& out) {
    if (!has(name)) return fail(name, "missing");
    optional_number(name, least, out);
  }
  // Stores a number of at least `least`; an absent field leaves `out` unchanged.
  void optional_number(std::string_view name, double least, double& out) {
    if (!has(name)) return;
    const nlohmann::json& value = at(name);
    if (!value.is_number() || !(value.get<double>() >= least)) {
      return fail(name,
                  absl::StrCat(show_json(value), ", but must be a number of at least ", least));
    }
    out = value.get<double>();
  }
  // Stores a boolean; an absent field leaves `out` unchanged.
  void optional_flag(std::string_view name, bool& out) {
    if (!has(name)) return;
    if (!at(name).is_boolean())
      return fail(name, absl::StrCat(show_json(at(name)), ", but must be true or false"));
    out = at(name).get<bool>();
  }
  // Returns the field's string, or its JSON if it is no string. Requires has(name).
  std::string text(std::string_view name) const {
    return at(name).is_string() ? at(name).get<std::string>() : show_json(at(name));
  }
  // Records an error if the field exists and its value is not in `allowed`.
  void only(std::string_view name, std::initializer_list<nlohmann::json> allowed) {
    (void)index_of(name, allowed);
  }
  // Returns the index of the field's value in `allowed`. Returns nullopt if the field is absent;
  // records an error and returns nullopt if the value is not in `allowed`.
  std::optional<size_t> index_of(std::string_view name,
                                 const std::vector<nlohmann::json>& allowed) {
    if (!has(name)) return std::nullopt;
    std::string values;
    for (size_t i = 0; i < allowed.size(); ++i) {
      if (at(name) == allowed[i]) return i;
      absl::StrAppend(&values, values.empty() ? "" : " or ", allowed[i].dump());
    }
    fail(name, absl::StrCat(show_json(at(name)), "; this trainer runs ",
                            values.empty() ? "this family without it" : values));
    return std::nullopt;
  }
  // Returns a reader of a nested object. Records an error and returns a reader of an empty object
  // if the field is not an object.
  JsonFields group(std::string_view name) {
    static const nlohmann::json nothing = nlohmann::json::object();
    if (at(name).is_object()) return JsonFields(at(name));
    fail(name, absl::StrCat(show_json(at(name)), ", but must be an object"));
    return JsonFields(nothing);
  }

  // Records the error "<name> is <what>".
  void fail(std::string_view name, std::string_view what) {
    if (status_.ok())
      status_ = absl::InvalidArgumentError(absl::StrCat(av(name), " is ", av(what)));
  }
  // Records the error of `other`, the reader of the nested object `group`.
  void take(const JsonFields& other, std::string_view group) {
    if (status_.ok() && !other.status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat(av(group), ": ", other.status_.message()));
    }
  }
  const absl::Status& status() const { return status_; }
  // Returns the fields that no caller requested, as "name: value", without those that are null.
  std::vector<std::string> unread() const {
    std::vector<std::string> names;
    for (const auto& item : config_.items()) {
      if (!item.value().is_null() && !was_read(item.key()))
        names.push_back(absl::StrCat(show_json(item.key()), ": ", show_json(item.value())));
    }
    return names;
  }
  // Returns the first field whose value is an object; "" if there is none.
  std::string first_group() const {
    for (const auto& item : config_.items())
      if (item.value().is_object()) return item.key();
    return "";
  }
  // Notes are for users, and no errors. Copies share them.
  void note(std::string text) { notes_->push_back(std::move(text)); }
  const std::vector<std::string>& notes() const { return *notes_; }
  // Whether a caller requested the field. Copies share this information.
  bool was_read(const std::string& name) const { return read_->contains(name); }

 private:
  bool contains(std::string_view name) const {
    read_->emplace(name);
    return config_.contains(std::string(name));
  }
  const nlohmann::json& at(std::string_view name) const { return config_.at(std::string(name)); }

  const nlohmann::json& config_;
  std::shared_ptr<std::set<std::string>> read_ = std::make_shared<std::set<std::string>>();
  std::shared_ptr<std::vector<std::string>> notes_ = std::make_shared<std::vector<std::string>>();
  absl::Status status_;
};

// Reads head_dim into `model`. If the field is absent, head_dim is emb_dim / num_query_heads;
// `width_name` and `heads_name` are the names of these fields for the error if the division has a
// remainder.
inline void read_head_dim(JsonFields& fields, std::string_view width_name,
                          std::string_view heads_name, ModelConfig& model) {
  if (fields.has("head_dim")) return fields.size("head_dim", model.head_dim);
  if (!fields.status().ok()) return;
  if (model.emb_dim % model.num_query_heads != 0) {
    return fields.fail(width_name, absl::StrCat(model.emb_dim, ", which ", av(heads_name), " (",
                                                model.num_query_heads, ") does not divide"));
  }
  model.head_dim = model.emb_dim / model.num_query_heads;
}

}  // namespace muster::trainer
