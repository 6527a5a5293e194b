#include "trainer_core/evaluation/task_lines.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/data/text_file.h"
#include "trainer_core/evaluation/eval_task.h"
#include "trainer_core/evaluation/scored_tokens.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kEvalChoicesMax = 1000;
constexpr size_t kFilesShown = 10;
// Errors show values of a line, and the JSON library writes nested values recursively.
constexpr int kLineDepthMax = 100;

// The fields of a line. After the first problem, the functions return empty values.
class Fields {
 public:
  explicit Fields(const Json& line) : line_(line) {}

  std::string text(const char* name) {
    const Json* const value = find(name, "a string", [](const Json& v) { return v.is_string(); });
    return value == nullptr ? "" : value->get<std::string>();
  }
  int64_t index(const char* name, size_t count) {
    const auto fits = [&](const Json& v) {
      return v.is_number_unsigned() && v.get<uint64_t>() < count;
    };
    const Json* const value = find(name, absl::StrCat("an index below ", count), fits);
    return value == nullptr ? 0 : value->get<int64_t>();
  }
  // BoolQ's own files have true and false, those of SuperGLUE 1 and 0 as "label".
  bool answer() {
    if (!line_.contains("answer") && line_.contains("label")) return index("label", 2) == 1;
    const Json* const value =
        find("answer", "true or false", [](const Json& v) { return v.is_boolean(); });
    return value != nullptr && value->get<bool>();
  }
  std::vector<std::string> texts(const char* name) {
    const auto fits = [](const Json& v) {
      return v.is_array() && v.size() >= 2 && v.size() <= kEvalChoicesMax &&
             std::ranges::all_of(v, [](const Json& text) { return text.is_string(); });
    };
    const Json* const value =
        find(name, absl::StrCat("a list of 2 to ", kEvalChoicesMax, " strings"), fits);
    return value == nullptr ? std::vector<std::string>() : value->get<std::vector<std::string>>();
  }
  void reject(std::string why) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(std::move(why));
  }
  const absl::Status& status() const { return status_; }

 private:
  template <class Fits>
  const Json* find(const char* name, const std::string& what, const Fits& fits) {
    const auto found = line_.find(name);
    if (found == line_.end()) {
      reject(absl::StrCat("the field \"", name, "\" is missing; it must be ", what));
      return nullptr;
    }
    if (fits(*found)) return &*found;
    reject(absl::StrCat("the field \"", name, "\" is ", show_json(*found), "; it must be ", what));
    return nullptr;
  }

  const Json& line_;
  absl::Status status_;
};

// The words of Lambada are separated by single blanks.
TaskLine lambada(Fields& fields) {
  std::string text = fields.text("text");
  text.resize(text.size() - trailing_space(text));
  const size_t blank = text.rfind(' ');
  if (blank == std::string::npos) {
    fields.reject("the field \"text\" has no second word to predict");
    return {};
  }
  return {TaskForm::kContinuation, text.substr(0, blank), {text.substr(blank)}, 0};
}

TaskLine boolq(Fields& fields) {
  const std::string passage = fields.text("passage"), question = fields.text("question");
  const bool answer = fields.answer();
  return {TaskForm::kChoice,
          absl::StrCat(passage, "\nQuestion: ", question, "?\nAnswer:"),
          {" no", " yes"},
          answer ? 1 : 0};
}

TaskLine choice(Fields& fields) {
  TaskLine line{TaskForm::kChoice, fields.text("context"), fields.texts("choices"), 0};
  line.gold = fields.index("gold", line.continuations.size());
  return line;
}

TaskLine log_likelihood(Fields& fields) {
  return {TaskForm::kContinuation, fields.text("context"), {fields.text("continuation")}, 0};
}

TaskLine perplexity(Fields& fields) { return {TaskForm::kRolling, fields.text("text"), {}, 0}; }

struct TaskReader {
  std::string_view task;
  TaskForm form;
  TaskLine (*read)(Fields& fields);
};
constexpr TaskReader kReaders[] = {{"lambada", TaskForm::kContinuation, lambada},
                                   {"boolq", TaskForm::kChoice, boolq},
                                   {"choice", TaskForm::kChoice, choice},
                                   {"loglikelihood", TaskForm::kContinuation, log_likelihood},
                                   {"perplexity", TaskForm::kRolling, perplexity}};
static_assert(std::size(kReaders) == kEvalTaskNames.size());

// Requires a task of kEvalTaskNames.
const TaskReader& reader_of(std::string_view task) {
  return *std::ranges::find(kReaders, task, &TaskReader::task);
}

absl::StatusOr<TaskLine> parse_line(const TaskReader& reader, std::string_view text) {
  bool too_deep = false;
  const auto bound_depth = [&too_deep](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kLineDepthMax;
    return !too_deep;
  };
  const Json json = Json::parse(text, bound_depth, /*allow_exceptions=*/false);
  if (too_deep) {
    return absl::InvalidArgumentError(
        absl::StrCat("nests values more than ", kLineDepthMax, " deep"));
  }
  if (!json.is_object()) {
    constexpr size_t kShown = 60;
    return absl::InvalidArgumentError(
        absl::StrCat("is no JSON object: ", escape_controls(std::string(text.substr(0, kShown)))));
  }
  Fields fields(json);
  TaskLine line = reader.read(fields);
  if (!fields.status().ok()) return fields.status();
  return line;
}

// Lists the files of `folder`: another split may have been meant.
std::string folder_files(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (entry->is_regular_file(error)) names.push_back(entry->path().filename().string());
  }
  std::ranges::sort(names);
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kFilesShown); ++i)
    absl::StrAppend(&list, i == 0 ? "" : ", ", names[i]);
  return list;
}

absl::Status check_file(const EvalTaskFile& file) {
  std::error_code error;
  const bool is_folder = fs::is_directory(file.file, error);
  const fs::path folder = is_folder ? fs::path(file.file) : fs::path(file.file).parent_path();
  const std::string where = absl::StrCat("eval_tasks: ", file.task, "=", file.file);
  if (is_folder || !fs::exists(file.file, error)) {
    const std::string names = folder_files(folder);
    return absl::NotFoundError(absl::StrCat(
        where, is_folder ? " is a folder; give a file of it: " : ": there is no such file",
        is_folder || names.empty() ? "" : absl::StrCat("; ", folder.string(), " has "), names));
  }
  if (const auto bytes = fs::file_size(file.file, error); !error && bytes > kEvalFileBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(where, " has ", bytes, " bytes; at most ",
                                                   kEvalFileBytesMax, " are evaluated"));
  }
  return absl::OkStatus();
}

bool is_blank(std::string_view text) { return trailing_space(text) == text.size(); }

// Returns the length of the UTF-8 character that begins `text`, of which the rest may be missing.
size_t character_bytes(std::string_view text) {
  size_t bytes = 1;
  while (bytes < text.size() && (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U) ++bytes;
  return bytes;
}

}  // namespace

TaskForm task_form(std::string_view task) { return reader_of(task).form; }

absl::Status for_each_task_line(
    const EvalTaskFile& file,
    absl::FunctionRef<absl::Status(size_t number, const TaskLine& line)> visit) {
  if (auto status = check_file(file); !status.ok()) return status;
  const auto opened = TextFile::open(file.file);
  if (!opened.ok())
    return {opened.status().code(), absl::StrCat("eval_tasks: ", opened.status().message())};
  const TaskReader& reader = reader_of(file.task);
  std::string_view rest = (*opened)->text();
  size_t lines = 0;
  for (size_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view text = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (is_blank(text)) continue;
    ++lines;
    const auto line = parse_line(reader, text);
    absl::Status status = line.status();
    if (status.ok()) status = visit(number, *line);
    if (!status.ok()) {
      return {status.code(), absl::StrCat("eval_tasks: ", file.task, ": ", file.file, ":", number,
                                          ": ", status.message())};
    }
  }
  if (lines > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("eval_tasks: ", file.task, ": ", file.file, " has no line"));
}

size_t word_count(std::string_view text) {
  size_t words = 1;
  bool in_space = false;
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    const bool space = trailing_space(text.substr(0, bytes)) > 0;
    if (space && !in_space) ++words;
    in_space = space;
    text.remove_prefix(bytes);
  }
  return words;
}

size_t characters_of_choice(std::string_view choice) {
  if (choice.starts_with(' ')) choice.remove_prefix(1);
  size_t characters = 0;
  for (; !choice.empty(); choice.remove_prefix(character_bytes(choice))) ++characters;
  return std::max<size_t>(characters, 1);
}

}  // namespace muster::trainer
