// Kills tokenize_files() with a tracer at each call that changes a file: the same run again
// produces the same files.
#include <gmock/gmock.h>

#include <filesystem>
#include <map>

#include <gtest/gtest.h>

#include "tests/unit/trainer_core/checkpoint/traced_process.h"
#include "tests/unit/trainer_core/text/tokenize_fixture.h"
#include "trainer_core/data/token_dataset.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

bool changes_files(const FileCall& call) {
  if (call.name == "write" || call.name == "pwrite64")
    return call.path.starts_with("/");  // not a pipe
  return call.creates || call.name.starts_with("rename") || call.name.starts_with("unlink") ||
         call.name.starts_with("mkdir");
}

class TokenizeFaults : public TokenizeFixture {
 protected:
  void SetUp() override {
    if (!can_trace()) GTEST_SKIP() << "this place refuses ptrace";
    // Each file is one chunk, and each chunk one shard.
    fs::create_directories(folder_->file("texts"));
    for (const int i : {1, 2, 3})
      write_file(folder_->file("texts/" + std::to_string(i) + ".txt"), corpus(40 * i));
  }

  static TokenizeOptions to(const std::string& output) {
    TokenizeOptions of = options(output);
    of.inputs = {folder_->file("texts")};
    of.shard_tokens = 1;
    of.threads = 2;
    return of;
  }
  static std::map<std::string, std::string> files_of(const std::string& output) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(folder_->file(output)))
      files[entry.path().filename()] = read_file(entry.path());
    return files;
  }

  // Kills the run at its n-th changing call, from 0, if it has that many.
  static bool killed_at(const std::string& output, size_t n, Fate fate, FileCall& at) {
    size_t seen = 0;
    return run_traced([&] { return tokenize_files(to(output)).ok() ? 0 : 1; },
                      [&](size_t, const FileCall& call) {
                        if (!changes_files(call) || seen++ != n) return Decision{};
                        at = call;
                        return Decision{fate};
                      })
        .killed;
  }
};

TEST_F(TokenizeFaults, TheSameRunProducesTheSameFilesAfterAnyKill) {
  ASSERT_TRUE(tokenize_files(to("whole")).ok());
  const auto expected = files_of("whole");
  ASSERT_EQ(expected.size(), 4U) << "three shards and the index";
  size_t n = 0;
  for (FileCall at;; ++n) {
    bool was_killed = false;
    for (const Fate fate : {Fate::kKill, Fate::kTear}) {
      fs::remove_all(folder_->file("killed"));
      was_killed = killed_at("killed", n, fate, at);
      const auto again = tokenize_files(to("killed"));
      if (!was_killed) break;
      ASSERT_TRUE(again.ok()) << at.text() << ": " << again.status();
      ASSERT_EQ(files_of("killed"), expected) << "killed at change " << n << ", " << at.text();
    }
    if (!was_killed) break;
  }
  EXPECT_GT(n, 20U);
  EXPECT_LT(n, 100U) << "two runs for each";
}

// An earlier data set is whole at every moment until the new one is.
TEST_F(TokenizeFaults, AKillAtEveryChangeLeavesADataSet) {
  TokenizeOptions earlier = to("earlier");
  earlier.inputs = {folder_->file("texts/2.txt")};
  ASSERT_TRUE(tokenize_files(earlier).ok());
  ASSERT_TRUE(tokenize_files(to("whole")).ok());
  const auto tokens_in = [](const std::string& output) {
    const auto dataset = TokenDataset::open(folder_->file(output), kVocab);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() && (*dataset)->verify_shards().ok() ? (*dataset)->tokens() : 0;
  };
  const uint64_t old_tokens = tokens_in("earlier"), new_tokens = tokens_in("whole");
  bool was_killed = true;
  size_t found_old = 0, found_new = 0;
  for (size_t n = 0; was_killed; ++n) {
    fs::remove_all(folder_->file("killed"));
    fs::copy(folder_->file("earlier"), folder_->file("killed"));
    FileCall at;
    was_killed = killed_at("killed", n, Fate::kKill, at);
    const uint64_t found = tokens_in("killed");
    ASSERT_TRUE(found == old_tokens || found == new_tokens) << n << ", " << at.text();
    ++(found == old_tokens ? found_old : found_new);
    ASSERT_TRUE(tokenize_files(to("killed")).ok());
    ASSERT_EQ(tokens_in("killed"), new_tokens);
    ASSERT_EQ(files_of("killed").size(), 4U) << "nothing is left of others: " << at.text();
  }
  EXPECT_GT(found_old, 10U);
  EXPECT_GT(found_new, 1U);
}

}  // namespace
}  // namespace muster::trainer
