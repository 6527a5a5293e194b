#include "jobspec/files/yaml_file.h"

#include <algorithm>
#include <map>

#include <absl/strings/str_cat.h>
#include <yaml-cpp/yaml.h>

#include "common/files/file_read.h"
#include "common/text/absl_view.h"
#include "jobspec/files/value.h"
#include "trainer_core/base/file_kind.h"

namespace muster::jobspec {
namespace {

// logical_axis_rules, the deepest value of MaxText, has three levels.
constexpr int kDepthMax = 16;
// Anchors and aliases can make a small file denote a huge value.
constexpr int kNodesMax = 100'000;

// Throws YAML::Exception for a value that is too deep or too large; callers catch it.
nlohmann::json to_json(const YAML::Node& node, int depth, int& nodes_left) {
  if (depth > kDepthMax || --nodes_left < 0)
    throw YAML::Exception(node.Mark(), "nested too deeply");
  if (node.IsScalar()) return node.Scalar();
  if (node.IsSequence()) {
    auto list = nlohmann::json::array();
    for (const auto& item : node) list.push_back(to_json(item, depth + 1, nodes_left));
    return list;
  }
  if (node.IsMap()) {
    auto map = nlohmann::json::object();
    for (const auto& item : node) {
      map[item.first.Scalar()] = to_json(item.second, depth + 1, nodes_left);
    }
    return map;
  }
  return nullptr;
}

absl::Status at(const std::string& path, int line, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ":", line, ": ", av(what)));
}

absl::StatusOr<std::vector<YamlEntry>> entries_of(const YAML::Node& root, const std::string& path) {
  std::vector<YamlEntry> entries;
  if (root.IsNull()) return entries;
  if (!root.IsMap()) return at(path, 1, "expected lines of the form `key: value`");
  std::map<std::string, int> lines;
  int nodes_left = kNodesMax;
  for (const auto& item : root) {
    const int line = item.first.Mark().line + 1;
    if (!item.first.IsScalar()) return at(path, line, "a key must be a plain word");
    YamlEntry entry;
    entry.key = item.first.Scalar();
    entry.line = line;
    const auto [earlier, is_new] = lines.emplace(entry.key, line);
    if (!is_new) {
      return at(
          path, line,
          absl::StrCat(entry.key, " is set a second time (first in line ", earlier->second, ")"));
    }
    entry.is_scalar = item.second.IsScalar() || item.second.IsNull();
    if (item.second.IsScalar()) {
      entry.text = item.second.Scalar();
    } else if (!entry.is_scalar) {
      entry.value = to_json(item.second, 0, nodes_left);
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

absl::StatusOr<std::vector<YamlEntry>> read_yaml_file(const std::string& path) {
  absl::StatusOr<std::string> text =
      read_plain_file_up_to(kYamlBytesMax, path, absl::StrCat("config file ", path));
  if (!text.ok()) return text.status();
  if (text->find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not YAML: it has NUL bytes"));
  }
  if (auto status = trainer::check_no_pointer(path, *text, text->size()); !status.ok())
    return status;
  try {
    return entries_of(YAML::Load(*text), path);
  } catch (const YAML::Exception& error) {
    return at(path, error.mark.line + 1, absl::StrCat("not YAML: ", error.msg));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not YAML: ", error.what()));
  }
}

absl::StatusOr<nlohmann::json> parse_yaml_list(std::string_view text) {
  const auto depth =
      std::count(text.begin(), text.end(), '[') + std::count(text.begin(), text.end(), '{');
  if (depth > kNodesMax || text.empty() || text.front() != '[') {
    return absl::InvalidArgumentError("not a list");
  }
  try {
    const YAML::Node node = YAML::Load(std::string(text));
    int nodes_left = kNodesMax;
    if (node.IsSequence()) return to_json(node, 0, nodes_left);
  } catch (const std::exception&) {
    return absl::InvalidArgumentError("not a list");
  }
  return absl::InvalidArgumentError("not a list");
}

}  // namespace muster::jobspec
