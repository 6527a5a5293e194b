// Folders with symbolic links: every entry is read once, or listed with the reason why not.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "trainer_core/text/input_files.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class FolderLinks : public testing::Test {
 protected:
  FolderLinks() { fs::create_directories(root()); }

  std::string root() const { return folder_.file("corpus"); }
  std::string at(const std::string& name) const { return root() + "/" + name; }
  void file(const std::string& path) {
    fs::create_directories(fs::path(path).parent_path());
    write_file(path, path);
  }
  // Returns {path relative to the corpus: "" if it is read, otherwise the reason}.
  std::map<std::string, std::string> entries() const {
    const auto found = find_input_files({{root()}}, std::nullopt);
    EXPECT_TRUE(found.ok()) << found.status();
    std::map<std::string, std::string> entries;
    if (!found.ok()) return entries;
    const auto name = [&](const std::string& path) {
      return fs::path(path).lexically_relative(root()).string();
    };
    for (const InputFile& input : found->files)
      EXPECT_TRUE(entries.emplace(name(input.path), "").second);
    for (const IgnoredEntry& entry : found->ignored)
      EXPECT_TRUE(entries.emplace(name(entry.path), entry.reason).second) << entry.path;
    return entries;
  }
  std::string error() const {
    return std::string(find_input_files({{root()}}, std::nullopt).status().message());
  }

  TempFolder folder_;
};

TEST_F(FolderLinks, LinkedFoldersAndFilesAreRead) {
  file(folder_.file("elsewhere/a.txt"));
  file(folder_.file("elsewhere/deep/b.jsonl"));
  file(folder_.file("single.txt"));
  file(at("own.txt"));
  fs::create_directory_symlink(folder_.file("elsewhere"), at("linked"));
  fs::create_symlink("../single.txt", at("file.txt"));
  EXPECT_EQ(
      entries(),
      (std::map<std::string, std::string>{
          {"own.txt", ""}, {"file.txt", ""}, {"linked/a.txt", ""}, {"linked/deep/b.jsonl", ""}}));
}

TEST_F(FolderLinks, CirclesEndAndEachFileIsReadOnce) {
  file(at("a/one.txt"));
  fs::create_directory_symlink("..", at("a/up"));
  fs::create_directory_symlink(root(), at("a/root"));
  fs::create_directory_symlink("a", at("again"));
  fs::create_symlink("a/one.txt", at("0-first-by-name.txt"));
  fs::create_hard_link(at("a/one.txt"), at("b-hard.txt"));
  const auto all = entries();
  // The first of a file's paths that are no links counts.
  const std::string reader = all.at("b-hard.txt").empty() ? "b-hard.txt" : "a/one.txt";
  const std::string other = reader == "b-hard.txt" ? "a/one.txt" : "b-hard.txt";
  EXPECT_EQ(all.at(reader), "");
  EXPECT_EQ(all.at(other), "the same file as " + at(reader));
  EXPECT_EQ(all.at("0-first-by-name.txt"), "the same file as " + at(reader));
  EXPECT_EQ(all.at("a/up"), "the same folder as " + root());
  EXPECT_EQ(all.at("a/root"), "the same folder as " + root());
  EXPECT_EQ(all.at("again"), "the same folder as " + at("a"));
  EXPECT_EQ(all.size(), 6U);
}

// A store's files have names without a format; the links to them have one.
TEST_F(FolderLinks, ALinkWithAFormatReadsAFileWithoutOne) {
  file(at("datasets--x/blobs/0123abcd"));
  file(at("datasets--x/refs/main"));
  file(at("store/ab12"));
  for (const char* name : {"datasets--x/snapshots/r1", "datasets--x/snapshots/r2"})
    fs::create_directories(at(name));
  for (const char* name : {"r1", "r2"}) {
    fs::create_symlink("../../blobs/0123abcd",
                       at(std::string("datasets--x/snapshots/") + name + "/train.jsonl"));
  }
  fs::create_symlink("store/ab12", at("train.jsonl"));
  fs::create_symlink("datasets--x/refs/main", at("main.md"));
  const std::string read = "datasets--x/snapshots/r1/train.jsonl";
  EXPECT_EQ(
      entries(),
      (std::map<std::string, std::string>{
          {read, ""},
          {"train.jsonl", ""},
          {"datasets--x/snapshots/r2/train.jsonl", "the same file as " + at(read)},
          {"datasets--x/blobs/0123abcd", "the same file as " + at(read)},
          {"store/ab12", "the same file as " + at("train.jsonl")},
          {"datasets--x/refs/main", "unknown ending"},
          {"main.md", "the same file as " + at("datasets--x/refs/main") + ", which is not read"}}));
  // A stated format makes every name readable, and the real ones count.
  const auto forced = find_input_files({{root()}}, InputFormat::kText);
  ASSERT_TRUE(forced.ok()) << forced.status();
  EXPECT_EQ(forced->files.size(), 3U);
  EXPECT_EQ(forced->files[0].path, at("datasets--x/blobs/0123abcd"));
}

TEST_F(FolderLinks, DanglingLinksAreErrors) {
  struct Case {
    const char* target;
    const char* expected;
  };
  for (const Case& c : {Case{"nowhere", "a symbolic link to nowhere, which does not exist"},
                        {"/no/such/path.txt", "a symbolic link to /no/such/path.txt"},
                        {"../../blobs/0123", "a cache of the Hugging Face Hub"},
                        {".git/annex/objects/x", "run git annex get"},
                        {"link.txt", "link.txt is a symbolic link that leads to itself"}}) {
    fs::remove_all(root());
    file(at("good.txt"));
    fs::create_symlink(c.target, at("link.txt"));
    EXPECT_THAT(error(), HasSubstr(c.expected)) << c.target;
    EXPECT_THAT(error(), HasSubstr(at("link.txt")));
  }
  fs::remove(at("link.txt"));
  fs::create_symlink("nowhere", at("no-ending"));
  EXPECT_THAT(error(), HasSubstr("no-ending")) << "whatever its name is";
  fs::remove(at("no-ending"));
  fs::create_symlink("b", at("a"));
  fs::create_symlink("a", at("b"));
  EXPECT_THAT(error(), HasSubstr("leads to itself"));
}

TEST_F(FolderLinks, EveryOtherEntryHasAReason) {
  file(at("a.txt"));
  file(at("README.md"));
  file(at("x.jsonl.part"));
  file(at(".hidden.txt"));
  file(at(".git/config"));
  ASSERT_EQ(mkfifo(at("pipe.txt").c_str(), 0600), 0);
  EXPECT_EQ(entries(), (std::map<std::string, std::string>{
                           {"a.txt", ""},
                           {"README.md", "unknown ending"},
                           {"x.jsonl.part", "an unfinished download"},
                           {".hidden.txt", "hidden"},
                           {".git", "hidden"},
                           {"pipe.txt", "neither a regular file nor a folder"}}));
}

TEST_F(FolderLinks, PointersOfGitLfsAreErrors) {
  for (const char* name : {"a.txt", "b.jsonl", "c.parquet", "d.tfrecord", "e.jsonl.zst"}) {
    fs::remove_all(root());
    file(at("good.txt"));
    write_file(at(name),
               "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 3023\n");
    EXPECT_THAT(error(), HasSubstr(at(name) + ": this is a Git LFS pointer: run git lfs pull"));
  }
  // A text about pointers is none.
  fs::remove_all(root());
  fs::create_directories(root());
  write_file(at("a.txt"), "The first line is version https://git-lfs.github.com/spec/v1\noid x\n");
  EXPECT_EQ(error(), "");
  write_file(at("a.txt"), "version https://git-lfs.github.com/spec/v1\nis the first line.\n");
  EXPECT_EQ(error(), "");
}

TEST_F(FolderLinks, WebPagesInPlaceOfDataAreErrors) {
  for (const char* name : {"a.jsonl", "b.parquet", "c.tfrecord", "d.jsonl.zst", "e.txt.gz"}) {
    fs::remove_all(root());
    file(at("good.txt"));
    write_file(at(name), "<!DOCTYPE html>\n<html>Sign in</html>\n");
    EXPECT_THAT(error(), HasSubstr(at(name) + ": this is a web page, not the file"));
  }
  // A text may be of web pages.
  fs::remove_all(root());
  fs::create_directories(root());
  write_file(at("a.txt"), "<!DOCTYPE html>\n<html>A page</html>\n");
  EXPECT_EQ(error(), "");
}

TEST_F(FolderLinks, FilesOfSeveralInputsAreNoted) {
  file(at("a.txt"));
  const std::vector<std::string> inputs = {root(), at("a.txt")};
  const auto found = find_input_files(inputs, std::nullopt);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->files.size(), 2U);
  EXPECT_THAT(found->notes, testing::ElementsAre(HasSubstr("named by several inputs")));
}

// Random trees of folders, files and links: nothing is missing from the account.
TEST_F(FolderLinks, RandomTreesAreAccountedFor) {
  std::mt19937 random(7);
  for (int round = 0; round < 150; ++round) {
    fs::remove_all(root());
    fs::create_directories(root());
    std::vector<std::string> folders = {root()};
    std::vector<std::string> files;
    for (int i = 0; i < 25; ++i) {
      const std::string parent = folders[random() % folders.size()];
      const std::string path =
          parent + "/" + std::to_string(random() % 9) + "-" + std::to_string(i);
      switch (random() % 4) {
        case 0:
          fs::create_directory(path);
          folders.push_back(path);
          break;
        case 1:
          fs::create_directory_symlink(folders[random() % folders.size()], path);
          break;
        case 2:
          if (!files.empty()) {
            fs::create_symlink(files[random() % files.size()], path + ".txt");
            break;
          }
          [[fallthrough]];
        default:
          write_file(path + (random() % 4 == 0 ? ".md" : ".txt"), path);
          files.push_back(path + ".txt");
          if (!fs::exists(files.back())) files.pop_back();
      }
    }
    if (files.empty()) continue;
    const auto found = find_input_files({{root()}}, std::nullopt);
    ASSERT_TRUE(found.ok()) << found.status();
    // Every entry that a walk without links finds is in the account.
    std::set<std::string> accounted;
    std::set<std::pair<dev_t, ino_t>> read;
    for (const InputFile& input : found->files) {
      accounted.insert(input.path);
      struct stat info {};
      ASSERT_EQ(stat(input.path.c_str(), &info), 0);
      EXPECT_TRUE(read.emplace(info.st_dev, info.st_ino).second) << input.path << " is read twice";
    }
    for (const IgnoredEntry& entry : found->ignored) accounted.insert(entry.path);
    for (const auto& entry : fs::recursive_directory_iterator(root())) {
      // A folder is there by its entries.
      if (entry.is_directory()) continue;
      EXPECT_TRUE(accounted.contains(entry.path())) << entry.path();
    }
    for (const std::string& path : files) {
      struct stat info {};
      ASSERT_EQ(stat(path.c_str(), &info), 0);
      EXPECT_TRUE(read.contains({info.st_dev, info.st_ino})) << path;
    }
  }
}

}  // namespace
}  // namespace muster::trainer
