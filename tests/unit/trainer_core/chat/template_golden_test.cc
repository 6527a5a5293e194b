// Templates against Python's jinja2 (tests/golden/make_chat.py).
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <absl/strings/match.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "trainer_core/chat/characters.h"
#include "trainer_core/chat/template.h"

namespace muster::trainer::chat {
namespace {

using nlohmann::ordered_json;

std::string golden(const std::string& name) { return source_dir() + "/tests/golden/chat/" + name; }

std::string contents(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<ordered_json> lines_of(const std::string& name) {
  std::vector<ordered_json> lines;
  std::istringstream text(contents(golden(name)));
  for (std::string line; std::getline(text, line);) lines.push_back(ordered_json::parse(line));
  return lines;
}

// Compares a rendering with the result in a golden line. Returns whether they are equal.
bool expect_result(const std::string& source, const ordered_json& variables,
                   const ordered_json& line) {
  SCOPED_TRACE(source + "\n" + line.dump());
  const auto parsed = Template::parse(source);
  const auto rendered =
      parsed.ok() ? parsed->render(variables) : absl::StatusOr<Rendered>(parsed.status());
  if (line.contains("error")) {
    EXPECT_FALSE(rendered.ok()) << rendered->text;
    const bool is_syntax =
        absl::StartsWith(line["error"].get<std::string>(), "TemplateSyntaxError");
    EXPECT_EQ(parsed.ok(), !is_syntax) << parsed.status();
    return !rendered.ok();
  }
  EXPECT_TRUE(rendered.ok()) << rendered.status();
  if (!rendered.ok()) return false;
  EXPECT_EQ(rendered->text, line["text"].get<std::string>());
  EXPECT_EQ(rendered->generated.size(), line["generated"].size());
  if (rendered->generated.size() != line["generated"].size()) return false;
  for (size_t i = 0; i < rendered->generated.size(); ++i) {
    const std::string_view text = rendered->text;
    EXPECT_EQ(character_count(text.substr(0, rendered->generated[i].begin)),
              line["generated"][i][0]);
    EXPECT_EQ(character_count(text.substr(0, rendered->generated[i].end)), line["generated"][i][1]);
  }
  return rendered->text == line["text"].get<std::string>();
}

TEST(TemplateGoldenTest, RendersConversationsAsJinja2) {
  const std::vector<ordered_json> lines = lines_of("cases.jsonl");
  ASSERT_GT(lines.size(), 400U);
  for (size_t i = 1; i < lines.size(); ++i) {
    const ordered_json& line = lines[i];
    ordered_json variables = lines[0]["special"];
    variables["messages"] = lines[0]["conversations"][line["conversation"].get<size_t>()];
    variables["tools"] = line["with_tools"].get<bool>() ? lines[0]["tools"] : ordered_json();
    variables["documents"] = nullptr;
    variables["add_generation_prompt"] = line["add_generation_prompt"];
    if (!expect_result(contents(golden(line["file"].get<std::string>())), variables, line)) break;
  }
}

TEST(TemplateGoldenTest, RendersGeneratedTemplatesAsJinja2) {
  const std::vector<ordered_json> lines = lines_of("generated.jsonl");
  ASSERT_GT(lines.size(), 1000U);
  int failures = 0;
  for (size_t i = 1; i < lines.size() && failures < 20; ++i) {
    const std::string source = lines[i]["source"].get<std::string>();
    if (!expect_result(source, lines[0]["variables"], lines[i])) ++failures;
  }
}

}  // namespace
}  // namespace muster::trainer::chat
