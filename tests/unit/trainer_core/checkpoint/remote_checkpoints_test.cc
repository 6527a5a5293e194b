#include "trainer_core/checkpoint/remote_checkpoints.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

constexpr char kUrl[] = "s3://b/run";
constexpr char kSave[] = "00ff";
constexpr char kPast[] = "2001-01-01 00:00:00";
constexpr char kFuture[] = "2999-01-01 00:00:00";

// rclone as far as checkpoints use it, over objects in memory.
class Bucket {
 public:
  struct Object {
    std::string content, changed;
  };
  std::map<std::string, Object> objects;  // by bucket/key
  int reads = 0;

  StoreTool tool() {
    return [this](const std::vector<std::string>& words,
                  const ChildOptions& options) -> absl::StatusOr<ChildEnd> {
      // The statistics of rclone, in two pieces.
      if (options.on_errors) {
        options.on_errors("2026/11/28 10:00:00 INFO  :     2.000 MiB / 5.722 MiB, 35%, 0 B/s, ");
        options.on_errors("ETA -\n2026/11/28 10:00:02 INFO  : x: Copied (new)\n");
      }
      if (options.watch) options.watch();
      return run(words);
    };
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [key, object] : objects) names.push_back(key.substr(6));
    return names;
  }
  void add(const std::string& name, const std::string& content) {
    objects["b/run/" + name] = {content, kPast};
  }

 private:
  static ChildEnd ended(int exit_code, std::string output = "") {
    ChildEnd end;
    end.exit_code = exit_code;
    end.output = std::move(output);
    return end;
  }

  ChildEnd run(const std::vector<std::string>& words) {
    std::string list, folder, url;
    bool is_upload = false;
    for (const std::string& word : words) {
      if (word.starts_with("--files-from-raw=")) list = word.substr(word.find('=') + 1);
      if (word.starts_with("musterstore:")) {
        url = word.substr(word.find(':') + 1);
        is_upload = !folder.empty();
      }
      if (word.starts_with("/")) folder = word;
    }
    if (words[1] == "lsf") return listing(url);
    if (words[1] == "cat") {
      ++reads;
      return ended(0, objects.contains(url) ? objects[url].content : "");
    }
    if (words[1] == "deletefile") return ended(objects.erase(url) == 1 ? 0 : 4);
    std::ifstream names(list);
    for (std::string name; std::getline(names, name);) {
      const std::string key = url + "/" + name;
      if (words[1] == "delete") {
        objects.erase(key);
      } else if (is_upload) {
        objects[key] = {read_file(folder + "/" + name), kPast};
      } else if (objects.contains(key)) {
        write_file(folder + "/" + name, objects[key].content);
      }
    }
    return ended(0);
  }

  ChildEnd listing(const std::string& url) const {
    std::string text;
    for (const auto& [key, object] : objects) {
      if (key != url && !key.starts_with(url + "/")) continue;
      const std::string name =
          key == url ? key.substr(key.rfind('/') + 1) : key.substr(url.size() + 1);
      absl::StrAppend(&text, object.content.size(), "\t", object.changed, "\t", name, "\n");
    }
    return ended(0, text);
  }
};

class RemoteCheckpointsTest : public testing::Test {
 protected:
  RemoteCheckpointsTest() { setenv("MUSTER_OBJECT_CACHE", folder_.path().c_str(), 1); }
  ~RemoteCheckpointsTest() override { unsetenv("MUSTER_OBJECT_CACHE"); }

  static Manifest manifest(int64_t step, const std::string& save) {
    StoredFile file;
    file.name = absl::StrCat("model-00000-00000-", save, ".safetensors");
    file.digest = {.bytes = 4, .blocks = {1}};
    Manifest manifest;
    manifest.info.step = step;
    manifest.info.config = {{"steps", 100}};
    manifest.files = {file};
    return manifest;
  }

  // Uploads one file of a save, as each rank does.
  absl::Status upload_file(RemoteCheckpoints& checkpoints, int64_t step, const std::string& save) {
    const std::string name = manifest(step, save).files[0].name;
    write_file(folder_.file(name), "data");
    return checkpoints.upload(folder_.path(), {name}, step);
  }

  // Publishes a save whose files are uploaded, as CheckpointStore does.
  absl::Status publish(RemoteCheckpoints& checkpoints, int64_t step, const std::string& save) {
    if (auto listed = checkpoints.list(); !listed.ok()) return listed.status();
    if (auto status = checkpoints.check_object_sizes(manifest(step, save)); !status.ok())
      return status;
    if (auto status = checkpoints.check_owner(); !status.ok()) return status;
    write_file(folder_.file(kManifestFile), manifest_text(manifest(step, save)));
    return checkpoints.upload(folder_.path(), {kManifestFile}, step);
  }

  void save(RemoteCheckpoints& checkpoints, int64_t step) {
    ASSERT_TRUE(upload_file(checkpoints, step, kSave).ok());
    const absl::Status status = publish(checkpoints, step, kSave);
    ASSERT_TRUE(status.ok()) << status;
  }

  static CheckpointOwner owner(uint32_t attempt, uint64_t job = 7) {
    return {.job = job, .attempt = attempt, .incarnation = 90 + attempt};
  }

  const TempFolder folder_;
  Bucket bucket_;
};

TEST_F(RemoteCheckpointsTest, FilesThatALateAttemptRemovesMakeNoCheckpoint) {
  RemoteCheckpoints second(kUrl, bucket_.tool());
  ASSERT_TRUE(second.take(owner(2)).ok());
  save(second, 4);
  ASSERT_TRUE(upload_file(second, 8, "02").ok());
  // The late attempt reads OWNER before the second attempt writes it.
  bucket_.objects.erase("b/run/OWNER");
  RemoteCheckpoints first(kUrl, bucket_.tool());
  ASSERT_TRUE(first.take(owner(1)).ok());
  ASSERT_TRUE(first.remove_incomplete().ok());
  const absl::Status status = publish(second, 8, "02");
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  ASSERT_TRUE(second.remove_old(8, 1).ok());
  EXPECT_THAT(bucket_.names(), IsSupersetOf({"4/manifest.json"}));
  EXPECT_FALSE(bucket_.objects.contains("b/run/8/manifest.json"));
}

TEST_F(RemoteCheckpointsTest, TheHigherAttemptBecomesTheOwnerAgain) {
  RemoteCheckpoints second(kUrl, bucket_.tool());
  ASSERT_TRUE(second.take(owner(2)).ok());
  bucket_.add("OWNER", text_of(owner(1)));
  EXPECT_TRUE(second.check_owner().ok());
  EXPECT_EQ(*second.owner_text(), text_of(owner(2)));
  bucket_.objects.erase("b/run/OWNER");
  EXPECT_TRUE(second.check_owner().ok());
  EXPECT_EQ(*second.owner_text(), text_of(owner(2)));
  bucket_.add("OWNER", text_of(owner(3)));
  EXPECT_TRUE(absl::IsAborted(second.check_owner()));
  bucket_.add("OWNER", text_of(owner(1, 8)));
  EXPECT_TRUE(absl::IsAborted(second.check_owner()));
  EXPECT_EQ(*second.owner_text(), text_of(owner(1, 8)));
}

TEST_F(RemoteCheckpointsTest, AnAttemptThatIsLateDoesNotTakeTheDirectory) {
  bucket_.objects["b/run/OWNER"] = {text_of(owner(2)), kFuture};
  RemoteCheckpoints first(kUrl, bucket_.tool());
  EXPECT_TRUE(absl::IsAborted(first.take(owner(1))));
  EXPECT_EQ(*first.owner_text(), text_of(owner(2)));
  // The coordinator lost its state: the owner wrote OWNER before this process began.
  bucket_.add("OWNER", text_of(owner(2)));
  EXPECT_TRUE(first.take(owner(1)).ok());
  EXPECT_EQ(*first.owner_text(), text_of(owner(1)));
}

TEST_F(RemoteCheckpointsTest, OnlyCompleteCheckpointsCountAsKept) {
  RemoteCheckpoints checkpoints(kUrl, bucket_.tool());
  ASSERT_TRUE(checkpoints.take(owner(1)).ok());
  for (const int64_t step : {2, 4, 6, 8}) save(checkpoints, step);
  bucket_.objects.erase(absl::StrCat("b/run/6/", manifest(6, kSave).files[0].name));
  bucket_.add(absl::StrCat("4/", manifest(4, kSave).files[0].name), "short");
  ASSERT_TRUE(checkpoints.remove_old(8, 2).ok());
  const auto steps = checkpoints.list();
  ASSERT_TRUE(steps.ok());
  EXPECT_THAT(*steps, ElementsAre(2, 4, 6, 8)) << "6 and 4 are damaged";
  save(checkpoints, 10);
  bucket_.reads = 0;
  ASSERT_TRUE(checkpoints.remove_old(10, 2).ok());
  EXPECT_THAT(*checkpoints.list(), ElementsAre(4, 6, 8, 10));
  EXPECT_LE(bucket_.reads, 2) << "the new manifest, and OWNER";
}

TEST_F(RemoteCheckpointsTest, ObjectsOfOthersAreNeitherCountedNorRemoved) {
  RemoteCheckpoints checkpoints(kUrl, bucket_.tool());
  for (const char* name :
       {"0006/manifest.json", "-0/manifest.json", "+1/manifest.json", "2024/photo.jpg", "3",
        "5/notes.txt", "5/sub/manifest.json", "5/model-final.safetensors"})
    bucket_.add(name, "mine");
  const std::vector<std::string> before = bucket_.names();
  bucket_.add("5/model-00000-00001-ab12.safetensors", "torn");
  bucket_.add("7/optimizer-00000-00000.safetensors", "torn");
  ASSERT_TRUE(checkpoints.remove_incomplete().ok());
  EXPECT_EQ(bucket_.names(), before);
  bucket_.add("5/model-00000-00001-ab12.safetensors", "torn");
  ASSERT_TRUE(checkpoints.take(owner(1)).ok());
  save(checkpoints, 8);
  save(checkpoints, 9);
  ASSERT_TRUE(checkpoints.remove_old(9, 1).ok());
  EXPECT_THAT(bucket_.names(), IsSupersetOf(before));
  EXPECT_THAT(*checkpoints.list(), ElementsAre(9));
  EXPECT_FALSE(bucket_.objects.contains("b/run/5/model-00000-00001-ab12.safetensors"));
}

// The ranks of a node share the staging folder of a save.
TEST_F(RemoteCheckpointsTest, AnUploadLeavesTheStagingFolder) {
  RemoteCheckpoints checkpoints(kUrl, bucket_.tool());
  const std::string staged = folder_.file("staged");
  fs::create_directories(staged);
  write_file(staged + "/model-00000-00000-1.safetensors", "data");
  ASSERT_TRUE(checkpoints.upload(staged, {"model-00000-00000-1.safetensors"}, 4).ok());
  EXPECT_TRUE(fs::is_directory(staged));
  EXPECT_TRUE(fs::is_empty(staged));
}

TEST_F(RemoteCheckpointsTest, FilesAreFetchedOnlyWithTheirSizes) {
  RemoteCheckpoints checkpoints(kUrl, bucket_.tool());
  ASSERT_TRUE(checkpoints.take(owner(1)).ok());
  save(checkpoints, 4);
  RemoteCheckpoints reader(kUrl, bucket_.tool());
  ASSERT_TRUE(reader.list().ok());
  const auto found = reader.fetch_manifest(4);
  ASSERT_TRUE(found.ok()) << found.status();
  const std::string name = found->files[0].name;
  int fetches = 0, uploads = 0;
  uint64_t sent = 0;
  reader.show_transfers([&] { ++fetches; },
                        [&](uint64_t bytes) {
                          ++uploads;
                          sent = bytes;
                        });
  ASSERT_TRUE(reader.fetch_files(*found, {name}).ok());
  EXPECT_EQ(fetches, 1) << "a phase with progress is no hang";
  ASSERT_TRUE(upload_file(reader, 12, kSave).ok());
  EXPECT_EQ(uploads, 1);
  EXPECT_EQ(sent, 2U << 20);
  EXPECT_EQ(read_file(absl::StrCat(found->info.folder, "/", name)), "data");
  EXPECT_TRUE(absl::IsFailedPrecondition(reader.fetch_same_manifest(4, "other").status()));
  bucket_.objects.erase("b/run/4/" + name);
  ASSERT_TRUE(reader.list().ok());
  const absl::Status damaged = reader.fetch_manifest(4).status();
  EXPECT_TRUE(absl::IsDataLoss(damaged));
  EXPECT_THAT(std::string(damaged.message()), HasSubstr(name));
  EXPECT_TRUE(absl::IsDataLoss(reader.fetch_manifest(12).status()));
}

}  // namespace
}  // namespace muster::trainer
