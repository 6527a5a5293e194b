#include "jobspec/settings/keys.h"

#include <fstream>
#include <set>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "jobspec/files/yaml_file.h"
#include "tests/paths.h"
#include "tests/unit/jobspec/config_files.h"

namespace muster::jobspec {
namespace {

TEST(Keys, NamesAreUniqueAndRowsComplete) {
  std::set<std::string_view> names;
  for (const Key& key : all_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_EQ(find_key(key.name), &key);
    EXPECT_TRUE(key.support == Support::kWorks || !key.note.empty()) << key.name;
  }
  for (const Alias& alias : all_aliases()) {
    EXPECT_TRUE(names.insert(alias.name).second) << alias.name;
    EXPECT_NE(find_key(alias.target), nullptr) << alias.name;
    EXPECT_TRUE(alias.second_target.empty() || find_key(alias.second_target) != nullptr);
  }
}

TEST(Keys, EveryShippedKeyIsKnownAndEveryWorkingKeyIsShipped) {
  const auto entries = read_yaml_file(source_dir() + "/configs/base.yml");
  ASSERT_TRUE(entries.ok()) << entries.status();
  std::set<std::string> shipped;
  for (const YamlEntry& entry : *entries) {
    EXPECT_NE(find_key(entry.key), nullptr) << entry.key;
    shipped.insert(entry.key);
  }
  for (const Key& key : all_keys()) {
    const bool is_shipped = shipped.count(std::string(key.name)) > 0;
    EXPECT_TRUE(is_shipped || key.support != Support::kWorks) << key.name;
  }
}

TEST(Keys, TopicsAreSectionsOfTheShippedFile) {
  std::ifstream file(source_dir() + "/configs/base.yml");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  size_t begin = 0;
  std::string_view topic;
  for (const Key& key : all_keys()) {
    if (topic_of(key) == topic) continue;
    topic = topic_of(key);
    if (topic == "After pre-training") break;  // none of these is in the file
    const size_t section = text.find(absl::StrCat("# ---- ", av(topic)), begin);
    ASSERT_NE(section, std::string::npos) << topic << " of " << key.name;
    EXPECT_NE(text.find(absl::StrCat("\n", av(key.name), ":"), section), std::string::npos);
    begin = section;
  }
  EXPECT_EQ(topic_of(*find_key("vocab_size")), "Model");
  EXPECT_EQ(topic_of(*find_key("run_name")), "Run and launch");
}

TEST(Keys, NearestName) {
  EXPECT_EQ(nearest_key("per_devce_batch_size"), "per_device_batch_size");
  EXPECT_EQ(nearest_key("learnin_rate"), "learning_rate");
  EXPECT_EQ(nearest_key("xyzzy_plugh_nothing"), "");
}

}  // namespace
}  // namespace muster::jobspec
