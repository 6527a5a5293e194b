// Random command lines, environments and files: each is accepted or rejected with a sentence, and
// nothing crashes.
#include <random>
#include <span>

#include "jobspec/dialects/dialect.h"
#include "jobspec/dialects/flag_table.h"
#include "tests/unit/jobspec/config_files.h"
#include "tests/unit/sanitized.h"

namespace muster::jobspec {
namespace {

constexpr int kCommandLines = kSanitized ? 200 : 1000;
constexpr int kFiles = kSanitized ? 150 : 500;

class Fuzz : public ConfigFiles {
 protected:
  uint32_t draw(uint32_t below) { return static_cast<uint32_t>(generator_() % below); }

  std::string value() {
    static const std::string kInteresting[] = {"",
                                               "0",
                                               "-1",
                                               "1",
                                               "2",
                                               "4",
                                               "1e308",
                                               "-1e-308",
                                               "9223372036854775807",
                                               "9223372036854775808",
                                               "-9223372036854775808",
                                               "2147483648",
                                               "True",
                                               "None",
                                               "[]",
                                               "[[[[",
                                               "['silu', 'linear']",
                                               "{a: b}",
                                               "*x",
                                               "&x [*x]",
                                               "!!binary x",
                                               "nan",
                                               "0x10",
                                               "1_0",
                                               "\xff\xfe",
                                               "/",
                                               "~/",
                                               "gs://",
                                               "a\nb",
                                               "llama2-7b"};
    if (draw(4) != 0) return kInteresting[draw(std::size(kInteresting))];
    std::string text;
    for (uint32_t i = draw(40); i > 0; --i) text.push_back(static_cast<char>(draw(256)));
    return text;
  }

  std::string key() {
    const auto keys = all_keys();
    std::string name(keys[draw(static_cast<uint32_t>(keys.size()))].name);
    if (draw(10) == 0)
      name[draw(static_cast<uint32_t>(name.size()))] = static_cast<char>(draw(256));
    return name;
  }

  std::mt19937 generator_{20240630};
};

TEST_F(Fuzz, CommandLines) {
  int accepted = 0;
  for (int i = 0; i < kCommandLines; ++i) {
    std::vector<std::string> overrides;
    for (uint32_t n = draw(4); n > 0; --n)
      overrides.push_back(key() + (draw(20) == 0 ? "" : "=") + value());
    std::vector<std::pair<std::string, std::string>> environment;
    if (draw(10) == 0) environment.emplace_back("M_" + key(), value());
    const std::string path = draw(50) == 0 ? (draw(2) == 0 ? "" : value()) : shipped();
    const auto config = load(overrides, environment, path);
    if (!config.ok()) {
      EXPECT_FALSE(config.status().message().empty());
      continue;
    }
    LaunchOptions launch = options();
    if (draw(2) == 0) launch.ranks_per_node = static_cast<int32_t>(draw(10)) - 2;
    const auto job = resolve_job(*config, launch);
    accepted += job.ok() ? 1 : 0;
    EXPECT_EQ(job.ok(), job.status().message().empty());
  }
  EXPECT_GT(accepted, kCommandLines / 20);
}

TEST_F(Fuzz, FlagsOfPaxAndAxlearn) {
  const auto flag = [&](std::span<const Flag> table, const std::string& prefix) {
    std::string name(table[draw(static_cast<uint32_t>(table.size()))].name);
    if (draw(20) == 0)
      name[draw(static_cast<uint32_t>(name.size()))] = static_cast<char>(draw(256));
    return prefix + name + (draw(20) == 0 ? "" : "=" + value());
  };
  int accepted = 0;
  for (int i = 0; i < kCommandLines; ++i) {
    const bool is_pax = draw(2) == 0;
    std::vector<std::string> words = {is_pax ? "CONFIG=GPT126M" : "--config=fuji-test"};
    for (uint32_t n = draw(4); n > 0; --n) {
      words.push_back(!is_pax        ? flag(axlearn_flags(), "--")
                      : draw(3) == 0 ? flag(pax_flags(), "--")
                      : draw(3) == 0 ? flag(pax_variables(), "")
                                     : flag(pax_parameters(), "--fdl."));
    }
    const auto translation = translate(words);
    EXPECT_EQ(translation.ok(), translation.status().message().empty());
    if (!translation.ok()) continue;
    const auto config = load_config({shipped(), translation->settings, translation->overrides, {}});
    EXPECT_EQ(config.ok(), config.status().message().empty());
    if (config.ok() && resolve_job(*config, options()).ok()) ++accepted;
  }
  EXPECT_GT(accepted, kCommandLines / 20);
}

TEST_F(Fuzz, Files) {
  std::ifstream shipped_file(shipped(), std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(shipped_file)),
                         std::istreambuf_iterator<char>());
  for (int i = 0; i < kFiles; ++i) {
    std::string broken = text;
    for (uint32_t n = 1 + draw(8); n > 0; --n) {
      const uint32_t at = draw(static_cast<uint32_t>(broken.size()));
      switch (draw(3)) {
        case 0:
          broken[at] = static_cast<char>(draw(256));
          break;
        case 1:
          broken.erase(at, draw(50));
          break;
        default:
          broken.insert(at, value());
      }
    }
    const auto config = load({}, {}, write("broken.yml", broken));
    if (config.ok()) (void)resolve_job(*config, options());
  }
}

}  // namespace
}  // namespace muster::jobspec
