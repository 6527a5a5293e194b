#include "jobspec/files/yaml_text.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <yaml-cpp/yaml.h>

namespace muster::jobspec {
namespace {

// Words of YAML 1.1, which most readers of manifests still implement.
constexpr std::array<std::string_view, 9> kOtherWords = {"y",   "n",    "yes",   "no",  "on",
                                                         "off", "true", "false", "null"};

bool is_letter(char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)); }

// True for a text that has no special beginning in YAML and no characters that end a plain text.
bool is_plain(const std::string& text) {
  constexpr size_t kPlainBytesMax = 60;
  const auto fits = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '/' || c == '.' || c == '_' ||
           c == '-' || c == '$';
  };
  if (text.empty() || text.size() > kPlainBytesMax) return false;
  if (!is_letter(text.front()) && text.front() != '/') return false;
  return std::all_of(text.begin(), text.end(), fits) &&
         std::none_of(kOtherWords.begin(), kOtherWords.end(), [&](std::string_view word) {
           return absl::EqualsIgnoreCase(text, {word.data(), word.size()});
         });
}

// True for lines that a YAML reader takes literally: plain characters, a newline at the end, and
// none at the beginning.
bool is_block(const std::string& text) {
  const auto fits = [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); };
  return text.size() > 2 && text.back() == '\n' && text[text.size() - 2] != '\n' &&
         text.front() != ' ' && text.front() != '\n' && std::all_of(text.begin(), text.end(), fits);
}

void write(YAML::Emitter& out, const nlohmann::ordered_json& value) {
  if (value.is_object()) {
    out << (value.empty() ? YAML::Flow : YAML::Block) << YAML::BeginMap;
    for (const auto& [key, item] : value.items()) {
      out << YAML::Key;
      write(out, nlohmann::ordered_json(key));
      out << YAML::Value;
      write(out, item);
    }
    out << YAML::EndMap;
  } else if (value.is_array()) {
    out << (value.empty() ? YAML::Flow : YAML::Block) << YAML::BeginSeq;
    for (const auto& item : value) write(out, item);
    out << YAML::EndSeq;
  } else if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (is_block(text)) {
      out << YAML::Literal;
    } else if (!is_plain(text)) {
      out << YAML::DoubleQuoted;
    }
    out << text;
  } else {
    out << value.dump();  // numbers and YAML's own words have JSON's form
  }
}

}  // namespace

std::string to_yaml(const nlohmann::ordered_json& value) {
  YAML::Emitter out;
  write(out, value);
  std::string text(out.c_str(), out.size());
  if (text.back() != '\n') text += '\n';  // a block ends with a newline
  return text;
}

}  // namespace muster::jobspec
