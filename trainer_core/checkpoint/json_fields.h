// Typed access to JSON that describes a foreign model.
#pragma once

#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/absl_view.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/base/model_config.h"

namespace muster::trainer {

// The smallest epsilon that may be added to a norm's mean of squares.
constexpr double kEpsilonMin = std::numeric_limits<float>::denorm_min();

// An object's fields by type. Keeps the first error: "hidden_size is \"wide\", but must be …".
// Refers to the object.
class JsonFields {
 public:
  explicit JsonFields(const nlohmann::json& config) : config_(config) {}

  // Null counts as absent, except in is_null().
  bool has(std::string_view name) const { return contains(name) && !at(name).is_null(); }
  bool is_null(std::string_view name) const { return contains(name) && at(name).is_null(); }

  void size(std::string_view name, int32_t& out) {
    if (!has(name)) return fail(name, "missing");
    optional_size(name, out);
  }
  void optional_size(std::string_view name, int32_t& out) {
    if (!has(name)) return;
    const nlohmann::json& value = at(name);
    if (!value.is_number_integer() || value < 1 || value > std::numeric_limits<int32_t>::max()) {
      return fail(name, absl::StrCat(show_json(value), ", but must be a positive whole number"));
    }
    out = value.get<int32_t>();
  }
  void number(std::string_view name, double least, double& out) {
    if (!has(name)) return fail(name, "missing");
    optional_number(name, least, out);
  }
  void optional_number(std::string_view name, double least, double& out) {
    if (!has(name)) return;
    const nlohmann::json& value = at(name);
    if (!value.is_number() || !(value.get<double>() >= least)) {
      return fail(name,
                  absl::StrCat(show_json(value), ", but must be a number of at least ", least));
    }
    out = value.get<double>();
  }
  void optional_flag(std::string_view name, bool& out) {
    if (!has(name)) return;
    if (!at(name).is_boolean())
      return fail(name, absl::StrCat(show_json(at(name)), ", but must be true or false"));
    out = at(name).get<bool>();
  }
  // Returns the field's string, or its JSON if it is none. Requires has(name).
  std::string text(std::string_view name) const {
    return at(name).is_string() ? at(name).get<std::string>() : show_json(at(name));
  }
  // Rejects values that are not in `allowed`; an absent field passes.
  void only(std::string_view name, std::initializer_list<nlohmann::json> allowed) {
    (void)index_of(name, allowed);
  }
  // Returns which of `allowed` the field is; nullopt if it is absent, or none of them: an error.
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
  // Returns the fields of a nested object; records an error and returns an empty one if it is not
  // an object.
  JsonFields group(std::string_view name) {
    static const nlohmann::json nothing = nlohmann::json::object();
    if (at(name).is_object()) return JsonFields(at(name));
    fail(name, absl::StrCat(show_json(at(name)), ", but must be an object"));
    return JsonFields(nothing);
  }

  void fail(std::string_view name, std::string_view what) {
    if (status_.ok())
      status_ = absl::InvalidArgumentError(absl::StrCat(av(name), " is ", av(what)));
  }
  void take(const JsonFields& other, std::string_view group) {
    if (status_.ok() && !other.status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat(av(group), ": ", other.status_.message()));
    }
  }
  const absl::Status& status() const { return status_; }
  // Whether a caller asked for the field. Copies share this knowledge.
  bool was_read(const std::string& name) const { return read_->contains(name); }

 private:
  bool contains(std::string_view name) const {
    read_->emplace(name);
    return config_.contains(std::string(name));
  }
  const nlohmann::json& at(std::string_view name) const { return config_.at(std::string(name)); }

  const nlohmann::json& config_;
  std::shared_ptr<std::set<std::string>> read_ = std::make_shared<std::set<std::string>>();
  absl::Status status_;
};

// Reads head_dim; the default is the width divided by the heads.
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
