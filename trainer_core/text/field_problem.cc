#include "trainer_core/text/field_problem.h"

#include <algorithm>
#include <span>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "trainer_core/text/document_text.h"

namespace muster::trainer {
namespace {

// A longer name is in no command.
constexpr size_t kPathBytesShown = 100;

std::string names_of(simdjson::dom::object object) {
  std::vector<std::string_view> names;
  for (const auto& [key, value] : object) names.push_back(key);
  return quoted_names(names);
}

// Returns the field whose string is the longest: a text by another name; "" if there is no string.
std::string_view longest_text(simdjson::dom::object object) {
  std::string_view name;
  size_t most = 0;
  for (const auto& [key, value] : object) {
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS || text.size() <= most) continue;
    most = text.size();
    name = key;
  }
  return name;
}

// The keys of a message's or a block's text in lists of objects.
constexpr const char* kTextKeys[] = {"content", "value", "text"};

struct ListKind {
  bool has_objects = false;
  const char* text_key = nullptr;  // key of the objects' text; null: none of kTextKeys
  bool has_parts = false;          // a text of the objects is a list of parts
};

ListKind kind_of(simdjson::dom::array list) {
  ListKind kind;
  for (const simdjson::dom::element item : list) {
    simdjson::dom::object object;
    if (item.get(object) != simdjson::SUCCESS) continue;
    kind.has_objects = true;
    for (const char* key : kTextKeys) {
      if (kind.text_key == nullptr && object.at_key(key).error() == simdjson::SUCCESS)
        kind.text_key = key;
    }
    if (kind.text_key != nullptr && object.at_key(kind.text_key).is_array()) kind.has_parts = true;
  }
  return kind;
}

// Returns the path of a field in a program of jq.
std::string jq_path(std::string_view name) {
  const bool is_plain = !name.empty() && std::ranges::all_of(name, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_';
  });
  if (is_plain && !absl::ascii_isdigit(static_cast<unsigned char>(name.front())))
    return absl::StrCat(".", av(name));
  std::string text = ".[\"";
  for (const char c : name) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + "\"]";
}

// Returns the path of a requested field, which may be a.b, the field b of a.
std::string path_of(std::string_view name) {
  std::string path;
  for (const absl::string_view part : absl::StrSplit(av(name), '.')) path += jq_path(sv(part));
  return path;
}

// Returns the command of a jq program, as one may paste it into a shell.
std::string jq(std::string_view program) { return "jq -c " + shell_quoted(program); }

// Returns a jq command that joins the texts of a list of messages.
std::string join_messages(std::string_view path, const ListKind& kind) {
  const std::string texts =
      kind.has_parts
          ? absl::StrCat("[]", jq_path(kind.text_key),
                         " | if type == \"array\" then .[] | (.text? // .) else . end | strings")
          : absl::StrCat("[]", jq_path(kind.text_key));
  return jq(absl::StrCat("{text: ([", av(path), texts, "] | join(\"\\n\"))}"));
}

// The names of the parts of an exercise, in the order of their texts: the task, more of it, and the
// answer.
constexpr std::string_view kTask[] = {"instruction", "prompt", "question"};
constexpr std::string_view kContext[] = {"input", "context"};
constexpr std::string_view kAnswer[] = {"output", "completion", "response", "answer"};

// Returns a jq command that joins the task and its answer; "" if the object has not both.
std::string join_parts(simdjson::dom::object object) {
  const auto first_of = [&](std::span<const std::string_view> names) {
    for (const std::string_view name : names) {
      std::string_view text;
      if (object.at_key(name).get(text) == simdjson::SUCCESS) return jq_path(name);
    }
    return std::string();
  };
  const std::string task = first_of(kTask), context = first_of(kContext),
                    answer = first_of(kAnswer);
  if (task.empty() || answer.empty()) return "";
  return jq(absl::StrCat("{text: ([", task, context.empty() ? "" : ", ", context, ", ", answer,
                         "] | map(select(. != \"\")) | join(\"\\n\"))}"));
}

// Returns the path of a string `name` one level below; "" if there is none.
std::string nested_text(std::string_view name, simdjson::dom::object object) {
  for (const auto& [key, value] : object) {
    simdjson::dom::object below;
    std::string_view text;
    if (value.get(below) == simdjson::SUCCESS && below.at_key(name).get(text) == simdjson::SUCCESS)
      return absl::StrCat(av(key), ".", av(name));
  }
  return "";
}

// Returns a clause with the way to the text of an object that has no field `name`; "" if there is
// none.
std::string other_text_of(std::string_view name, simdjson::dom::object object) {
  constexpr char kToFile[] = " FILE > NEW.jsonl ";
  std::string_view rows;
  for (const auto& [key, value] : object) {
    simdjson::dom::array list;
    if (value.get(list) != simdjson::SUCCESS) continue;
    const ListKind kind = kind_of(list);
    if (kind.text_key != nullptr)
      return absl::StrCat("; ", join_messages(jq_path(key), kind), kToFile, "joins its texts");
    if (kind.has_objects && rows.empty()) rows = key;
  }
  if (const std::string parts = join_parts(object); !parts.empty())
    return absl::StrCat("; ", parts, kToFile, "joins its parts");
  std::string other = nested_text(name, object);
  if (other.empty()) other = longest_text(object);
  if (!other.empty() && other.size() <= kPathBytesShown)
    return absl::StrCat("; --field ", shell_quoted(other), " reads that one");
  if (rows.empty() || rows.size() > kPathBytesShown) return "";
  return absl::StrCat("; ", jq(jq_path(rows) + "[]"), kToFile, "makes lines of it");
}

// Returns whether an object of the line is followed by another one.
bool has_several_objects(std::string_view line) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && (depth == 0 || --depth == 0)) {
      const size_t next = line.find_first_not_of(" \t\r,", i + 1);
      return line.starts_with('{') && next != std::string_view::npos && line[next] == '{';
    }
  }
  return false;
}

// Returns an error for a line with a separator of other formats around its object.
absl::Status separator_problem(std::string_view line) {
  const size_t last = line.find_last_not_of(" \t\r");
  if (line.starts_with('\x1E')) {
    return absl::InvalidArgumentError(
        "begins with a record separator (JSON text sequences); tr -d '\\036' < FILE > NEW.jsonl "
        "removes them");
  }
  if (line.starts_with('{') && last != line.npos && last > 0 && line[last] == ',' &&
      line[line.find_last_not_of(" \t\r", last - 1)] == '}') {
    return absl::InvalidArgumentError(
        "ends with a comma: the lines of a JSON array; sed 's/,[[:space:]]*$//' FILE > NEW.jsonl "
        "removes them");
  }
  return absl::OkStatus();
}

}  // namespace

std::string quoted_names(const std::vector<std::string_view>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i == kNamesShown) {
      text += ", …";
      break;
    }
    absl::StrAppend(&text, i == 0 ? "" : ", ", "\"", av(names[i].substr(0, kNameBytesShown)), "\"");
  }
  return text;
}

absl::Status no_field(std::string_view name, simdjson::dom::object object) {
  const std::string names = names_of(object);
  return absl::NotFoundError(absl::StrCat("has no field \"", av(name), "\"",
                                          names.empty() ? "" : "; it has ", names,
                                          other_text_of(name, object)));
}

absl::Status no_string(const std::string& name, simdjson::dom::element value) {
  const std::string what = absl::StrCat("field \"", name, "\" is ");
  if (value.is_null()) return absl::InvalidArgumentError(absl::StrCat(what, "null"));
  if (simdjson::dom::object object; value.get(object) == simdjson::SUCCESS) {
    const std::string names = names_of(object);
    return absl::InvalidArgumentError(absl::StrCat(
        what, "an object, no string", names.empty() ? "" : absl::StrCat("; it has ", names),
        "; --field ", shell_quoted(name + ".NAME"), " reads a field of it"));
  }
  simdjson::dom::array list;
  if (value.get(list) != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(absl::StrCat(what, "a number or a flag, no string; ",
                                                   jq(path_of(name) + " |= tostring"),
                                                   " makes one of it"));
  }
  const ListKind kind = kind_of(list);
  if (kind.text_key != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(what, "a list of messages, no string; ",
                                                   join_messages(path_of(name), kind),
                                                   " joins them"));
  }
  if (kind.has_objects) {
    return absl::InvalidArgumentError(absl::StrCat(what, "a list of objects, no string; ",
                                                   jq(path_of(name) + "[]"), " makes lines of it"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, "a list, no string; ", jq(path_of(name) + " |= (flatten | join(\"\\n\"))"),
                   " joins it"));
}

absl::Status line_problem(std::string_view line) {
  if (auto status = separator_problem(line); !status.ok()) return status;
  if (!has_several_objects(line)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "has several objects on a line; jq -c . FILE > NEW.jsonl makes a line of each");
}

}  // namespace muster::trainer
