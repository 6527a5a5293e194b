#include "jobspec/files/yaml_file.h"

#include <gmock/gmock.h>

#include <absl/strings/str_cat.h>

#include "tests/unit/jobspec/config_files.h"

namespace muster::jobspec {
namespace {

using ::testing::HasSubstr;

class YamlFile : public ConfigFiles {};

TEST_F(YamlFile, KeepsLinesScalarsAndLists) {
  const auto entries =
      read_yaml_file(write("a.yml", "# hello\nsteps: 150_001\n\nlist: ['a', b]\nnothing:\n"));
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 3U);
  EXPECT_EQ((*entries)[0].key, "steps");
  EXPECT_EQ((*entries)[0].line, 2);
  EXPECT_EQ((*entries)[0].text, "150_001");
  EXPECT_EQ((*entries)[1].value, nlohmann::json({"a", "b"}));
  EXPECT_EQ((*entries)[2].text, "");
}

TEST_F(YamlFile, ErrorsNameFileAndLine) {
  const std::pair<std::string, std::string> bad[] = {{"a: 1\na: 2\n", ":2: a is set a second time"},
                                                     {"a: [1\nb: 2\n", "not YAML"},
                                                     {"just words\n", "key: value"},
                                                     {"version https://git-lfs.github.com/spec/v1"
                                                      "\r\noid sha256:12\r\nsize 3\r\n",
                                                      "this is a Git LFS pointer"},
                                                     {"? [a, b]\n: 1\n", "plain word"},
                                                     {std::string("a: \0", 4), "NUL"}};
  for (const auto& [text, words] : bad) {
    const std::string path = write("bad.yml", text);
    const auto entries = read_yaml_file(path);
    EXPECT_THAT(error_of(entries), HasSubstr(words)) << text;
    EXPECT_THAT(error_of(entries), HasSubstr(path));
  }
}

TEST_F(YamlFile, MissingFoldersAndHugeFiles) {
  EXPECT_THAT(error_of(read_yaml_file("/no/such.yml")),
              HasSubstr("/no/such.yml: No such file or directory"));
  EXPECT_THAT(error_of(read_yaml_file(folder_.string())), HasSubstr("not a plain file"));
  EXPECT_THAT(error_of(read_yaml_file(write("big.yml", std::string(kYamlBytesMax + 1, '#')))),
              HasSubstr("longer than"));
}

TEST_F(YamlFile, DeepAndExplodingValuesAreRejected) {
  EXPECT_FALSE(read_yaml_file(write("deep.yml", "a: " + std::string(100'000, '['))).ok());
  std::string bomb = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 40; ++i) {
    absl::StrAppend(&bomb, "a", i, ": &a", i, " [*a", i - 1, ", *a", i - 1, "]\n");
  }
  EXPECT_FALSE(read_yaml_file(write("bomb.yml", bomb)).ok());
}

}  // namespace
}  // namespace muster::jobspec
