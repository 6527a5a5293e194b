#include "jobspec/keys.h"

#include <set>

#include "jobspec/yaml_file.h"
#include "tests/unit/jobspec/config_files.h"

namespace muster::jobspec {
namespace {

TEST(Keys, NamesAreUniqueAndRowsComplete) {
  std::set<std::string_view> names;
  for (const Key& key : all_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_EQ(find_key(key.name), &key);
    EXPECT_EQ(key.note.empty(), key.support == Support::kWorks) << key.name;
  }
  for (const Alias& alias : all_aliases()) {
    EXPECT_TRUE(names.insert(alias.name).second) << alias.name;
    EXPECT_NE(find_key(alias.target), nullptr) << alias.name;
    EXPECT_TRUE(alias.second_target.empty() || find_key(alias.second_target) != nullptr);
  }
}

TEST(Keys, EveryShippedKeyIsKnownAndEveryWorkingKeyIsShipped) {
  const auto entries = read_yaml_file(std::string(MUSTER_SOURCE_DIR) + "/configs/base.yml");
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

TEST(Keys, NearestName) {
  EXPECT_EQ(nearest_key("per_devce_batch_size"), "per_device_batch_size");
  EXPECT_EQ(nearest_key("learnin_rate"), "learning_rate");
  EXPECT_EQ(nearest_key("xyzzy_plugh_nothing"), "");
}

}  // namespace
}  // namespace muster::jobspec
