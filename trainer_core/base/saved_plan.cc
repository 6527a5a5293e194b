#include "trainer_core/base/saved_plan.h"

#define XXH_INLINE_ALL
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/job/limits.h"
#include "common/text/escape.h"
#include "common/version.h"
#include "trainer_core/base/json_file.h"

namespace muster::trainer {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "muster-plan";
constexpr int64_t kVersionNumber = 2;
// Begins each file: its keys are sorted.
constexpr std::string_view kBegin = R"({"checksum":")";
constexpr size_t kBuffersMax = 1'000'000;
constexpr size_t kListMax = 65'536;
constexpr size_t kNameBytes = 512;
constexpr size_t kShownMax = 80;
constexpr double kSecondsMax = 86'400;

constexpr const char* kRemedy =
    "; make it again: muster plan … compile_topology=… compiled_trainstep_file=FILE";

std::string checksum_of(const Json& plan) {
  const std::string text = plan.dump(-1, ' ', false, Json::error_handler_t::replace);
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return absl::StrCat(absl::Hex(hash.high64, absl::kZeroPad16),
                      absl::Hex(hash.low64, absl::kZeroPad16));
}

// Reads the fields of an object and stores the first error.
class Fields {
 public:
  Fields(const Json& object, std::string name) : object_(object), name_(std::move(name)) {
    if (!object_.is_object()) fail("is not an object");
  }

  const Json* find(const char* key) {
    if (!ok()) return nullptr;
    const auto found = object_.find(key);
    if (found != object_.end()) return &*found;
    fail(absl::StrCat("has no ", key));
    return nullptr;
  }
  void text(const char* key, std::string& out) {
    const Json* const value = find(key);
    if (value == nullptr) return;
    if (!value->is_string() || value->get_ref<const std::string&>().size() > kNameBytes)
      return fail_value(key, *value, "a text");
    out = value->get<std::string>();
  }
  void boolean(const char* key, bool& out) {
    const Json* const value = find(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) return fail_value(key, *value, "true or false");
    out = value->get<bool>();
  }
  template <class Integer>
  void integer(const char* key, int64_t min, int64_t max, Integer& out) {
    const Json* const value = find(key);
    if (value == nullptr) return;
    const auto number = integer_of(*value);
    if (!number || *number < min || *number > max)
      return fail_value(key, *value, absl::StrCat("a number from ", min, " to ", max));
    out = static_cast<Integer>(*number);
  }
  void seconds(const char* key, double& out) {
    const Json* const value = find(key);
    if (value == nullptr) return;
    const double number = value->is_number() ? value->get<double>() : -1;
    if (!(number >= 0 && number <= kSecondsMax))
      return fail_value(key, *value, absl::StrCat("seconds from 0 to ", kSecondsMax));
    out = number;
  }
  void texts(const char* key, std::vector<std::string>& out, size_t bytes_max) {
    const Json* const value = find(key);
    if (value == nullptr) return;
    if (!value->is_array() || value->size() > kListMax)
      return fail_value(key, *value, "a list of texts");
    for (const Json& one : *value) {
      if (!one.is_string() || one.get_ref<const std::string&>().size() > bytes_max)
        return fail_value(key, one, "a list of texts");
      out.push_back(one.get<std::string>());
    }
  }

  static std::optional<int64_t> integer_of(const Json& value) {
    if (value.is_number_unsigned()) {
      const auto number = value.get<uint64_t>();
      return std::in_range<int64_t>(number) ? std::optional(static_cast<int64_t>(number))
                                            : std::nullopt;
    }
    if (value.is_number_integer()) return value.get<int64_t>();
    return std::nullopt;
  }
  void fail_value(const char* key, const Json& value, std::string_view allowed) {
    const std::string shown = value.is_primitive() ? show_json(value) : value.type_name();
    fail(absl::StrCat("has ", key, "=", shown, ", which must be ",
                      absl::string_view(allowed.data(), allowed.size())));
  }
  void fail(const std::string& what) {
    if (error_.empty()) error_ = absl::StrCat(name_, " ", what);
  }
  bool ok() const { return error_.empty(); }
  const std::string& error() const { return error_; }

 private:
  const Json& object_;
  std::string name_;
  std::string error_;
};

std::optional<MemoryCategory> category_named(const std::string& name) {
  const auto* const found = std::ranges::find(kMemoryCategoryNames, name);
  if (found == kMemoryCategoryNames.end()) return std::nullopt;
  return static_cast<MemoryCategory>(found - kMemoryCategoryNames.begin());
}

// Returns the buffer of a list [name, category, offset, bytes]; nullopt if it is not one.
std::optional<PlannedBuffer> buffer_of(const Json& list) {
  constexpr size_t kParts = 4;
  if (!list.is_array() || list.size() != kParts || !list[0].is_string() || !list[1].is_string())
    return std::nullopt;
  const auto category = category_named(list[1].get_ref<const std::string&>());
  const auto offset = Fields::integer_of(list[2]), bytes = Fields::integer_of(list[3]);
  const bool fits = category && offset && bytes && *offset >= 0 && *bytes >= 0 &&
                    *bytes <= std::numeric_limits<int64_t>::max() - *offset &&
                    list[0].get_ref<const std::string&>().size() <= kNameBytes;
  if (!fits) return std::nullopt;
  return PlannedBuffer{list[0].get<std::string>(), *category, static_cast<size_t>(*offset),
                       static_cast<size_t>(*bytes)};
}

std::string read_layout(const Json& json, SavedLayout& layout) {
  Fields fields(json, "a layout");
  fields.integer("stage", 0, kNodesMax * int64_t{kRanksPerNodeMax}, layout.stage);
  fields.boolean("packed", layout.packed);
  fields.integer("device_bytes", 0, std::numeric_limits<int64_t>::max(), layout.device_bytes);
  const Json* const buffers = fields.find("buffers");
  if (buffers == nullptr) return fields.error();
  if (!buffers->is_array() || buffers->size() > kBuffersMax)
    fields.fail_value("buffers", *buffers, "a list of buffers");
  for (size_t i = 0; fields.ok() && i < buffers->size(); ++i) {
    auto buffer = buffer_of((*buffers)[i]);
    if (!buffer) fields.fail(absl::StrCat("has no valid buffer ", i));
    if (buffer) layout.buffers.push_back(*std::move(buffer));
  }
  return fields.error();
}

// Reads the value of `plan`. Returns what is wrong; empty: nothing.
std::string read_plan(const Json& json, SavedPlan& plan) {
  Fields fields(json, "the plan");
  if (const Json* const machines = fields.find("machines")) {
    Fields of(*machines, "machines");
    of.text("topology", plan.topology);
    of.text("device", plan.device);
    of.boolean("has_backend", plan.has_backend);
    of.integer("nodes", 1, kNodesMax, plan.nodes);
    of.integer("devices_per_node", 1, kRanksPerNodeMax, plan.devices_per_node);
    if (!of.ok()) return of.error();
  }
  fields.integer("threads", 0, kThreadsMax, plan.threads);
  fields.texts("schedule", plan.schedule, kSavedPlanBytesMax);
  fields.integer("device_bytes", 0, std::numeric_limits<int64_t>::max(), plan.device_bytes);
  fields.seconds("step_seconds", plan.step_seconds);
  fields.seconds("communication_seconds", plan.communication_seconds);
  fields.seconds("read_seconds", plan.read_seconds);
  fields.seconds("checkpoint_seconds", plan.checkpoint_seconds);
  fields.texts("algorithms", plan.algorithms, kNameBytes);
  if (const Json* const libraries = fields.find("libraries")) {
    if (!libraries->is_object() || libraries->size() > kNameBytes)
      return "libraries is not an object";
    for (const auto& [name, version] : libraries->items()) {
      if (!version.is_string()) return "libraries has a version that is not a text";
      plan.libraries[name] = version.get<std::string>();
    }
  }
  if (const Json* const layouts = fields.find("layouts")) {
    if (!layouts->is_array() || layouts->size() > kListMax) return "layouts is not a list";
    for (const Json& one : *layouts)
      if (auto error = read_layout(one, plan.layouts.emplace_back()); !error.empty()) return error;
  }
  if (const Json* const config = fields.find("config")) {
    auto parsed = train_config_from_json(*config);
    if (!parsed.ok()) return std::string(parsed.status().message());
    plan.config = *std::move(parsed);
  }
  return fields.error();
}

}  // namespace

std::string saved_plan_text(Json plan) {
  plan["muster"] = kVersion;
  Json file = {{"format", kFormat}, {"version", kVersionNumber}, {"checksum", checksum_of(plan)}};
  file["plan"] = std::move(plan);
  return file.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json layout_to_json(const MemoryPlan& memory, int32_t stage, bool packed) {
  auto buffers = Json::array();
  for (const PlannedBuffer& buffer : memory.buffers())
    buffers.push_back({buffer.name, kMemoryCategoryNames[static_cast<size_t>(buffer.category)],
                       buffer.offset, buffer.bytes});
  return {{"stage", stage},
          {"packed", packed},
          {"device_bytes", memory.device_bytes()},
          {"buffers", std::move(buffers)}};
}

absl::StatusOr<SavedPlan> parse_saved_plan(const Json& file, const std::string& path) {
  const auto refuse = [&](std::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("compiled_trainstep_file=", path, ": ", std::string(what), kRemedy));
  };
  const bool is_plan = file.is_object() && file.contains("format") && file["format"] == kFormat &&
                       file.contains("version") && file.contains("plan") &&
                       file["plan"].is_object();
  if (!is_plan) return refuse("the file is not a saved plan of Muster");
  if (file["version"] != kVersionNumber) {
    return refuse(absl::StrCat("the file has version ", show_json(file["version"]),
                               " of the format, and this Muster reads version ", kVersionNumber));
  }
  const Json& json = file["plan"];
  if (!file.contains("checksum") || file["checksum"] != checksum_of(json))
    return refuse("the file is damaged or was edited: its checksum differs");
  const Json made_by = json.value("muster", Json());
  if (made_by != kVersion) {
    return refuse(absl::StrCat("the plan was made by muster ",
                               made_by.is_string()
                                   ? printable(made_by.get<std::string>(), kShownMax)
                                   : "of an unknown version",
                               ", and this is muster ", kVersion));
  }
  SavedPlan plan{.path = path};
  if (const std::string error = read_plan(json, plan); !error.empty())
    return refuse(absl::StrCat("the file is not a valid plan: ", error));
  return plan;
}

absl::StatusOr<SavedPlan> read_saved_plan(const std::string& path) {
  const auto file = read_json_file(path, kSavedPlanBytesMax);
  if (file.ok()) return parse_saved_plan(*file, path);
  // The messages about content are those for downloaded files, which a plan is not.
  const std::string why(file.status().message());
  const bool is_about_content = absl::IsInvalidArgument(file.status()) &&
                                why.find(" is not a regular file") == std::string::npos &&
                                why.find(" may have at most ") == std::string::npos;
  if (!is_about_content)
    return absl::InvalidArgumentError(absl::StrCat("compiled_trainstep_file: ", why, kRemedy));
  return absl::InvalidArgumentError(
      absl::StrCat("compiled_trainstep_file=", path,
                   ": the file is not a saved plan of Muster, or is only a part of one", kRemedy));
}

absl::Status check_replaceable(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return absl::OkStatus();  // writing reports other errors
  const auto refuse = [&](const char* what) {
    return absl::InvalidArgumentError(absl::StrCat("compiled_trainstep_file=", path, ": ", what,
                                                   "; give the path of a new file"));
  };
  if (!S_ISREG(info.st_mode)) return refuse("it exists and is not a regular file");
  std::array<char, kBegin.size()> begin{};
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), begin.size());
  const auto bytes = static_cast<size_t>(file.gcount());
  if (bytes == 0 && info.st_size == 0) return absl::OkStatus();
  if (std::string_view(begin.data(), bytes) == kBegin) return absl::OkStatus();
  return refuse("the file exists and is not a saved plan");
}

}  // namespace muster::trainer
