#include "common/objects/object_store.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "common/objects/object_cache.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

StoreRetry once() { return {.within = Duration::zero(), .warn = nullptr}; }

ChildEnd failed(std::string errors, int exit_code = 1) {
  ChildEnd end;
  end.errors = std::move(errors);
  end.exit_code = exit_code;
  return end;
}

// rclone as far as ObjectStore uses it, over objects in memory.
struct FakeStore {
  struct Object {
    std::string content, changed;
  };
  std::map<std::string, Object> objects;  // by bucket/key
  int copies = 0;
  int failures = 0;        // number of the next calls that fail
  std::string lost_after;  // a copy ends after this object

  StoreTool tool() {
    return [this](const std::vector<std::string>& words,
                  const ChildOptions&) -> absl::StatusOr<ChildEnd> { return run(words); };
  }

 private:
  static std::string key(const std::string& remote) { return remote.substr(remote.find(':') + 1); }

  ChildEnd run(const std::vector<std::string>& words) {
    if (failures > 0) {
      --failures;
      return failed(
          "2026/11/28 09:44:56 ERROR : : error listing: RequestError: send request "
          "failed\ncaused by: dial tcp: connection refused\n");
    }
    if (words[1] == "lsf") return list(words);
    return copy(words);
  }

  ChildEnd list(const std::vector<std::string>& words) {
    std::string prefix;
    for (const std::string& word : words) {
      if (word.starts_with("musterstore:")) prefix = key(word);
    }
    ChildEnd end;
    for (const auto& [name, object] : objects) {
      if (name != prefix && !name.starts_with(prefix + "/")) continue;
      const std::string shown =
          name == prefix ? name.substr(name.rfind('/') + 1) : name.substr(prefix.size() + 1);
      absl::StrAppend(&end.output, object.content.size(), "\t", object.changed, "\t", shown, "\n");
    }
    return end;
  }

  ChildEnd copy(const std::vector<std::string>& words) {
    ++copies;
    std::string list, from, to;
    for (const std::string& word : words) {
      if (word.starts_with("--files-from-raw=")) list = word.substr(word.find('=') + 1);
      if (word.starts_with("musterstore:")) from = key(word);
      if (word.starts_with("/")) to = word;
    }
    std::ifstream names(list);
    for (std::string name; std::getline(names, name);) {
      fs::create_directories((fs::path(to) / name).parent_path());
      std::ofstream(fs::path(to) / name) << objects.at(from + "/" + name).content;
      if (name == lost_after) return failed("connection reset");
    }
    return {};
  }
};

TEST(ObjectStore, OnlyAnUploadWithAMeterRequestsStatistics) {
  std::vector<std::string> seen;
  const ObjectStore store(
      once(),
      [&](const std::vector<std::string>& words,
          const ChildOptions& options) -> absl::StatusOr<ChildEnd> {
        for (const std::string& word : words) {
          if (word.starts_with("--stats")) seen.push_back(word);
        }
        EXPECT_EQ(options.on_errors != nullptr, seen.size() > 1);
        if (options.on_errors)
          options.on_errors("2026/11/28 13:59:57 INFO  :  3 B / 5 B, 60%, 0, -\n");
        return ChildEnd{};
      });
  uint64_t sent = 0;
  ASSERT_TRUE(store.upload("/tmp", {"a"}, "s3://b/c").ok());
  EXPECT_THAT(seen, ElementsAre("--stats=0"));
  seen.clear();
  ASSERT_TRUE(
      store.upload("/tmp", {"a"}, "s3://b/c", nullptr, [&](uint64_t bytes) { sent = bytes; }).ok());
  EXPECT_THAT(seen, ElementsAre("--stats=2s", "--stats-one-line"));
  EXPECT_EQ(sent, 3U);
}

class ObjectCache : public testing::Test {
 protected:
  ObjectCache() {
    std::string name = (fs::temp_directory_path() / "muster-cache-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~ObjectCache() override { fs::remove_all(root_); }

  absl::StatusOr<std::string> fetch(const std::string& url) {
    return fetch_to_cache(ObjectStore(once(), store_.tool()), url, {}, root_);
  }
  static std::string content(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string root_;
  FakeStore store_;
};

TEST_F(ObjectCache, FetchesOnceUntilAnObjectChanges) {
  store_.objects = {{"b/data/index.json", {"{}", "t1"}}, {"b/data/sub/x", {"xyz", "t1"}}};
  const auto first = fetch("s3://b/data");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(content(*first + "/sub/x"), "xyz");
  EXPECT_EQ(*fetch("s3://b/data/"), *first);
  EXPECT_EQ(store_.copies, 1);
  EXPECT_EQ(*find_in_cache(ObjectStore(once(), store_.tool()), "s3://b/data", root_), *first);
  store_.objects["b/data/sub/x"] = {"abc", "t2"};
  EXPECT_EQ(*find_in_cache(ObjectStore(once(), store_.tool()), "s3://b/data", root_), std::nullopt);
  const auto second = fetch("s3://b/data");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(content(*second + "/sub/x"), "abc");
  EXPECT_EQ(content(*first + "/sub/x"), "xyz") << "this process may have it mapped";
}

TEST_F(ObjectCache, AnAddressOfAnObjectIsAFile) {
  store_.objects = {{"b/tok/llama.model", {"pieces", "t1"}}};
  const auto file = fetch("gs://b/tok/llama.model");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(content(*file), "pieces");
  EXPECT_THAT(std::string(fetch("gs://b/none").status().message()), HasSubstr("there is nothing"));
}

TEST_F(ObjectCache, AnInterruptedTransferLeavesNoFileUnderItsName) {
  store_.objects = {{"b/d/a", {"aaa", "t"}}, {"b/d/b", {"bbb", "t"}}};
  store_.lost_after = "a";
  EXPECT_TRUE(absl::IsUnknown(fetch("s3://b/d").status()));
  EXPECT_EQ(*find_in_cache(ObjectStore(once(), store_.tool()), "s3://b/d", root_), std::nullopt);
  store_.lost_after.clear();
  const auto folder = fetch("s3://b/d");
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(content(*folder + "/b"), "bbb");
}

TEST_F(ObjectCache, AnObjectThatLeadsOutOfTheFolderIsRefused) {
  store_.objects = {{"b/d/../../evil", {"x", "t"}}};
  EXPECT_TRUE(absl::IsInvalidArgument(fetch("s3://b/d").status()));
}

TEST_F(ObjectCache, AnotherEndpointIsAnotherStore) {
  setenv("AWS_ENDPOINT_URL", "http://one", 1);
  const std::string one = folder_of_url(root_, "s3://b/d");
  setenv("AWS_ENDPOINT_URL", "http://two", 1);
  EXPECT_NE(folder_of_url(root_, "s3://b/d"), one);
  unsetenv("AWS_ENDPOINT_URL");
}

TEST(ObjectStore, RepeatsWhatMayPass) {
  FakeStore fake;
  fake.objects = {{"b/d/a", {"aaa", "t"}}};
  fake.failures = 2;
  std::vector<std::string> warnings;
  const ObjectStore patient({.within = std::chrono::seconds(30),
                             .warn = [&](const std::string& text) { warnings.push_back(text); }},
                            fake.tool());
  const auto objects = patient.list("s3://b/d");
  ASSERT_TRUE(objects.ok()) << objects.status();
  EXPECT_THAT(*objects, ElementsAre(StoredObject{"a", 3, "t"}));
  ASSERT_EQ(warnings.size(), 1U) << "one a minute";
  EXPECT_THAT(warnings[0], AllOf(HasSubstr("s3://b/d"), HasSubstr("connection refused"),
                                 HasSubstr("tried again")));
  fake.failures = 1'000'000;
  const ObjectStore hurried({.within = std::chrono::hours(1),
                             .within_hurry = Duration::zero(),
                             .is_hurried = [] { return true; }},
                            fake.tool());
  EXPECT_TRUE(absl::IsUnknown(hurried.list("s3://b/d").status()));
}

absl::Status answer(const ChildEnd& end) {
  return ObjectStore(once(), [&](const auto&, const auto&) { return end; })
      .list("s3://bucket/key")
      .status();
}

TEST(ObjectStore, ErrorsNameCauseAndWayOut) {
  setenv("AWS_ACCESS_KEY_ID", "very-secret-id", 1);
  unsetenv("AWS_PROFILE");
  const absl::Status refused = answer(
      failed("2026/11/28 09:44:54 ERROR : : error listing: SignatureDoesNotMatch: The request "
             "signature we calculated does not match\n\tstatus code: 403, request id: 1\n",
             1));
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("s3://bucket/key"), HasSubstr("SignatureDoesNotMatch"),
                    HasSubstr("AWS_ACCESS_KEY_ID (set)"), HasSubstr("AWS_PROFILE (not set)"),
                    Not(HasSubstr("very-secret-id"))));
  unsetenv("AWS_ACCESS_KEY_ID");
  EXPECT_TRUE(absl::IsNotFound(answer(failed("directory not found", 3))));
  EXPECT_TRUE(absl::IsResourceExhausted(
      answer(failed("2026/11/28 09:44:54 ERROR : x: no space left on device", 1))));
  const absl::Status missing =
      ObjectStore(once(),
                  [](const auto&, const auto&) -> absl::StatusOr<ChildEnd> {
                    return absl::NotFoundError("there is no program rclone in PATH");
                  })
          .list("gs://bucket")
          .status();
  EXPECT_TRUE(absl::IsFailedPrecondition(missing));
  EXPECT_THAT(std::string(missing.message()),
              AllOf(HasSubstr("gs://bucket"), HasSubstr("apt-get install rclone")));
}

TEST(ObjectStore, SecretsAreNotOnTheCommandLine) {
  setenv("AWS_SECRET_ACCESS_KEY", "very-secret-key", 1);
  setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1", 1);
  setenv("AWS_CA_BUNDLE", "/etc/ca.pem", 1);
  std::vector<std::string> words, environment;
  const ObjectStore store(once(), [&](const auto& command, const ChildOptions& options) {
    words = command;
    environment = options.environment;
    return ChildEnd{};
  });
  (void)store.list("s3://bucket/key");
  for (const std::string& word : words) EXPECT_THAT(word, Not(HasSubstr("very-secret-key")));
  EXPECT_THAT(words, testing::Contains("--ca-cert=/etc/ca.pem"));
  EXPECT_THAT(environment,
              AllOf(testing::Contains("AWS_SECRET_ACCESS_KEY=very-secret-key"),
                    testing::Contains("RCLONE_CONFIG_MUSTERSTORE_ENDPOINT=http://127.0.0.1:1"),
                    Not(testing::Contains(HasSubstr("AWS_CA_BUNDLE")))));
  for (const char* name : {"AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE"})
    unsetenv(name);
}

TEST(ObjectStore, VariablesThatChangeWhatIsCopiedDoNotReachTheTool) {
  for (const char* name : {"RCLONE_DRY_RUN", "RCLONE_MAX_SIZE", "RCLONE_BWLIMIT"})
    setenv(name, "1", 1);
  setenv("RCLONE_S3_PROVIDER", "Ceph", 1);
  const auto parsed = parse_object_url("s3://bucket/key");
  EXPECT_THAT(store_environment(*parsed), AllOf(testing::Contains("RCLONE_BWLIMIT=1"),
                                                Not(testing::Contains("RCLONE_DRY_RUN=1")),
                                                Not(testing::Contains("RCLONE_MAX_SIZE=1")),
                                                testing::Contains("RCLONE_S3_PROVIDER=Ceph")));
  for (const char* name :
       {"RCLONE_DRY_RUN", "RCLONE_MAX_SIZE", "RCLONE_BWLIMIT", "RCLONE_S3_PROVIDER"})
    unsetenv(name);
}

// As Google's clients read the variable: with and without a scheme. No token is sent.
TEST(ObjectStore, AnEmulatorOfGooglesIsUsedWithoutATokenAsGooglesClientsDo) {
  const auto parsed = parse_object_url("gs://bucket/key");
  for (const char* host : {"127.0.0.1:4443", "http://127.0.0.1:4443", "http://127.0.0.1:4443/"}) {
    setenv("STORAGE_EMULATOR_HOST", host, 1);
    EXPECT_THAT(store_environment(*parsed),
                AllOf(testing::Contains(
                          "RCLONE_CONFIG_MUSTERSTORE_ENDPOINT=http://127.0.0.1:4443/storage/v1/"),
                      testing::Contains("RCLONE_CONFIG_MUSTERSTORE_ANONYMOUS=true")))
        << host;
  }
  unsetenv("STORAGE_EMULATOR_HOST");
  EXPECT_THAT(store_environment(*parsed),
              Not(testing::Contains(testing::AnyOf(HasSubstr("MUSTERSTORE_ENDPOINT"),
                                                   HasSubstr("MUSTERSTORE_ANONYMOUS")))));
}

TEST(ObjectStore, ACopyThatAdvancesIsRepeatedBeyondTheLimit) {
  int calls = 0;
  const std::string copied = "2026/11/28 09:44:56 INFO  : Forbidden-1: Copied (new)\n";
  const std::string error = "2026/11/28 09:44:57 ERROR : b: connection reset\n";
  const ObjectStore advancing({.within = std::chrono::milliseconds(1500)},
                              [&](const auto&, const ChildOptions&) {
                                ++calls;
                                return calls < 3 ? failed(copied + error) : ChildEnd{};
                              });
  EXPECT_TRUE(advancing.upload("/tmp", {"a", "b"}, "s3://bucket/key").ok());
  EXPECT_EQ(calls, 3);
  const ObjectStore standing({.within = std::chrono::milliseconds(1500)},
                             [&](const auto&, const ChildOptions&) { return failed(error); });
  const absl::Status status = standing.upload("/tmp", {"a"}, "s3://bucket/key");
  EXPECT_TRUE(absl::IsUnknown(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("connection reset"));
}

// Amazon's library repeats "caused by" for each level.
constexpr char kRefused[] =
    "2026/11/28 17:49:02 ERROR : : error listing: RequestError: send request failed\n"
    "caused by: Get \"http://store:9/bucket?delimiter=%2F&max-keys=1000&prefix=x%2F\": dial tcp "
    "127.0.0.1:9: connect: connection refused\n";

TEST(ObjectStore, AStoreThatCannotBeReachedIsNamedAtOnceAndAtTheEnd) {
  setenv("AWS_ENDPOINT_URL", "http://ada:secret@store:9", 1);
  std::vector<std::string> warnings;
  const ObjectStore store({.within = std::chrono::milliseconds(1500),
                           .warn = [&](const std::string& text) { warnings.push_back(text); }},
                          [](const auto&, const auto&) { return failed(kRefused); });
  const absl::Status status = store.list("s3://bucket/x").status();
  unsetenv("AWS_ENDPOINT_URL");
  EXPECT_TRUE(absl::IsUnknown(status));
  EXPECT_THAT(warnings,
              ElementsAre("s3://bucket/x: http://***@store:9 cannot be reached (connection "
                          "refused); it is tried again"));
  EXPECT_EQ(status.message(),
            "s3://bucket/x: http://***@store:9 cannot be reached (connection refused); tried for 1 "
            "s; check AWS_ENDPOINT_URL, the network of this machine and HTTPS_PROXY; "
            "MUSTER_STORE_WAIT_SECONDS=N waits longer");
}

TEST(ObjectStore, ASilentStoreIsNamedAndEndsTheAttempt) {
  setenv("STORAGE_EMULATOR_HOST", "silent:1", 1);
  std::vector<std::string> warnings;
  Duration limit{};
  const ObjectStore store(
      {.within = std::chrono::seconds(30),
       .warn = [&](const std::string& text) { warnings.push_back(text); },
       .silence = Duration::zero()},
      [&](const auto&, const ChildOptions& options) -> absl::StatusOr<ChildEnd> {
        for (int i = 0; i < 3; ++i) EXPECT_TRUE(options.watch());
        limit = options.first_output_by - monotonic_now();
        return failed("directory not found", 3);
      });
  EXPECT_TRUE(absl::IsNotFound(store.list("gs://bucket/x").status()));
  EXPECT_THAT(warnings, ElementsAre("gs://bucket/x: no answer yet from silent:1; waiting"));
  EXPECT_LE(limit, std::chrono::seconds(30));
  EXPECT_GT(limit, std::chrono::seconds(20));
  const ObjectStore killed(once(), [](const auto&, const auto&) -> absl::StatusOr<ChildEnd> {
    return absl::DeadlineExceededError("did not answer in time");
  });
  EXPECT_THAT(std::string(killed.list("gs://bucket/x").status().message()),
              AllOf(HasSubstr("silent:1 does not answer"), HasSubstr("HTTPS_PROXY")));
  unsetenv("STORAGE_EMULATOR_HOST");
}

TEST(ObjectStore, AVariableSetsTheWait) {
  EXPECT_EQ(store_wait(), kStoreWait);
  setenv("MUSTER_STORE_WAIT_SECONDS", "7", 1);
  EXPECT_EQ(StoreRetry().within, std::chrono::seconds(7));
  for (const char* text : {"", "soon", "-1"}) {
    setenv("MUSTER_STORE_WAIT_SECONDS", text, 1);
    EXPECT_EQ(store_wait(), kStoreWait) << text;
  }
  unsetenv("MUSTER_STORE_WAIT_SECONDS");
}

TEST(ObjectStore, AnAnswerThatIsTooLongIsNotRequestedAgain) {
  int calls = 0;
  size_t bound = 0;
  const ObjectStore store(
      {.within = std::chrono::hours(1)},
      [&](const auto&, const ChildOptions& options) -> absl::StatusOr<ChildEnd> {
        ++calls;
        bound = options.output_bytes_max;
        return absl::ResourceExhaustedError("printed more than is read");
      });
  EXPECT_TRUE(absl::IsInvalidArgument(store.read("s3://b/k", size_t{256} << 20).status()));
  EXPECT_EQ(calls, 1);
  EXPECT_GT(bound, size_t{256} << 20) << "a manifest may have as many bytes";
}

TEST(ObjectStore, MessagesNameTheEndpointWithoutItsPassword) {
  for (const char* name : {"AWS_ENDPOINT_URL", "RCLONE_S3_ENDPOINT"}) {
    setenv(name, "https://ada:secret@store:9000/x@y", 1);
    for (const char* error : {"AccessDenied", "NoSuchBucket"})
      EXPECT_THAT(std::string(answer(failed(error)).message()),
                  AllOf(HasSubstr("https://***@store:9000/x@y"), Not(HasSubstr("secret"))));
    unsetenv(name);
  }
}

}  // namespace
}  // namespace muster
