// A leader with its log of commits, on a real etcd, and changes of different sizes.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <absl/strings/str_format.h>
#include <gtest/gtest.h>

#include "coordinator/shell/etcd/commit_log.h"
#include "tests/unit/coordinator/shell/etcd/etcd_server.h"

namespace muster::coordinator {

// More than the operations of one transaction.
inline constexpr int kKeysOfMany = 3'600;
inline constexpr Duration kPoll = std::chrono::milliseconds(10);

// A leader with its log, without a storage.
struct Leader {
  Leader(const EtcdOptions& options, Duration ttl) : term(options, ttl) {}

  Term term;
  FencedCalls calls{*term.client, *term.lease};
  CommitLog log{calls};
};

class CommitLogTest : public EtcdTest {
 protected:
  KeyChanges change(const std::string& key, const std::optional<std::string>& value) const {
    return {{options().prefix + "/" + key, value}};
  }
  // Changes that need several transactions: each key has `letter` as its value.
  KeyChanges large(char letter) const {
    KeyChanges changes;
    for (int i = 0; i < 12; ++i)
      changes.merge(
          change("large" + std::to_string(10 + i), std::string(kValueBytesMax / 2, letter)));
    return changes;
  }
  // Returns the letter of all large keys; 0 if there are none.
  char letter() const {
    std::string letters;
    for (const auto& [key, value] : keys()) {
      if (key.rfind("large", 0) != 0) continue;
      EXPECT_EQ(value, std::string(kValueBytesMax / 2, value[0]));
      letters += value[0];
    }
    if (letters.empty()) return 0;
    EXPECT_EQ(letters, std::string(12, letters[0])) << "a part of a commit is missing";
    return letters[0];
  }
  std::string value_of(const std::string& wanted) const {
    for (const auto& [key, value] : keys())
      if (key == wanted) return value;
    return "";
  }
  bool has_stage() const {
    for (const auto& [key, value] : keys())
      if (key.rfind("stage/", 0) == 0) return true;
    return false;
  }
  uint64_t number() const {
    etcd_state::StoredCommit commit;
    EXPECT_TRUE(commit.ParseFromString(value_of("commit")));
    return commit.number();
  }
};

// So many small changes that a commit is staged, whose second part fits into one packet.
inline KeyChanges many(const EtcdOptions& options, const std::string& value) {
  KeyChanges changes;
  for (int i = 0; i < kKeysOfMany; ++i)
    changes[absl::StrFormat("%s/many%04d", options.prefix, i)] = value;
  return changes;
}

}  // namespace muster::coordinator
