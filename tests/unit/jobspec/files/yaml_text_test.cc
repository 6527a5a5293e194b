#include "jobspec/files/yaml_text.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

namespace muster::jobspec {
namespace {

using Json = nlohmann::ordered_json;

TEST(YamlText, HasALinePerFieldInOrder) {
  const Json value = {{"kind", "Job"},        {"metadata", {{"name", "first"}}},
                      {"replicas", 2},        {"suspend", false},
                      {"args", {"--a", "b"}}, {"none", Json::object()}};
  EXPECT_EQ(to_yaml(value),
            "kind: Job\n"
            "metadata:\n"
            "  name: first\n"
            "replicas: 2\n"
            "suspend: false\n"
            "args:\n"
            "  - \"--a\"\n"
            "  - b\n"
            "none: {}\n");
}

TEST(YamlText, QuotesAmbiguousTexts) {
  for (const char* text :
       {"",           "yes",       "No",         "true",        "NULL",     "~",    "1",
        "1e3",        "0x1f",      "2026-01-01", "- a",         "a: b",     "a #b", "*a",
        "&a",         "!a",        "%a",         "@a",          "`a`",      " a",   "a ",
        "two\nlines", "tab\there", "quote\"d",   "back\\slash", "\xc3\xa4", "\x01"}) {
    const std::string yaml = to_yaml(Json{{"key", text}});
    const YAML::Node read = YAML::Load(yaml);
    EXPECT_EQ(read["key"].as<std::string>(), text) << yaml;
    EXPECT_EQ(yaml.substr(0, 6), "key: \"") << yaml;
    EXPECT_EQ(std::count(yaml.begin(), yaml.end(), '\n'), 1) << yaml;
  }
}

TEST(YamlText, MultiLineTextsAreBlocks) {
  const std::string text = "{\n  \"a\": \"b # c: d\",\n\n  \"e\": 1\n}\n";
  const std::string yaml = to_yaml(Json{{"data", {{"job.json", text}}}});
  EXPECT_EQ(yaml,
            "data:\n  job.json: |\n    {\n      \"a\": \"b # c: d\",\n\n      \"e\": 1\n    }\n");
  EXPECT_EQ(YAML::Load(yaml)["data"]["job.json"].as<std::string>(), text);
  for (const char* odd : {"a\n\n", " a\n", "\na\n", "a\tb\n", "a\r\n", "a\nb"})
    EXPECT_EQ(YAML::Load(to_yaml(Json{{"key", odd}}))["key"].as<std::string>(), odd);
}

TEST(YamlText, QuotesKeysToo) {
  const Json value = {{"on", 1}, {"a.b/c", 2}};
  EXPECT_EQ(to_yaml(value), "\"on\": 1\na.b/c: 2\n");
}

}  // namespace
}  // namespace muster::jobspec
