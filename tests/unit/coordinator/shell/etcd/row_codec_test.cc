#include "coordinator/shell/etcd/row_codec.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "coordinator/shell/etcd/key_changes.h"

namespace muster::coordinator {
namespace {

std::string joined(const std::vector<std::string>& values) {
  std::string bytes;
  for (const std::string& value : values) bytes += value;
  return bytes;
}

TEST(RowCodecTest, ARowIsDecodedAsItWas) {
  const std::string every_byte = [] {
    std::string bytes;
    for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
    return bytes;
  }();
  const SqliteRow row = {std::monostate(),
                         int64_t{0},
                         INT64_MIN,
                         INT64_MAX,
                         0.0,
                         -1.5,
                         std::string(),
                         every_byte,
                         SqliteBlob{},
                         SqliteBlob{every_byte}};
  const auto values = encode_row(row);
  ASSERT_EQ(values.size(), 1U);
  const auto decoded = decode_row(values[0], 1);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, row);
  EXPECT_TRUE(decode_row(encode_row({})[0], 1)->empty());
}

TEST(RowCodecTest, ALargeRowHasPartsOfWhichNoneMayBeMissing) {
  const SqliteRow row = {int64_t{1}, SqliteBlob{std::string(5 << 20, '\x12')}};
  const auto values = encode_row(row);
  ASSERT_GT(values.size(), 9U);
  for (const std::string& value : values) EXPECT_LE(value.size(), kValueBytesMax);
  EXPECT_EQ(*decode_row(joined(values), values.size()), row);
  for (size_t i = 0; i < values.size(); ++i) {
    auto fewer = values;
    fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(i));
    EXPECT_FALSE(decode_row(joined(fewer), fewer.size()).ok()) << i;
  }
  EXPECT_FALSE(decode_row("\xFF", 1).ok());
}

TEST(RowCodecTest, KeysAreReadableAndUnique) {
  EXPECT_EQ(name_of_row("exits", {int64_t{7}, int64_t{-2}}), "exits/7/-2");
  EXPECT_EQ(name_of_row("request_ids", {std::string("a/b #1")}), "request_ids/'a%2Fb%20%231");
  EXPECT_EQ(table_of("exits/7/-2"), "exits");
  std::set<std::string> keys;
  const std::vector<SqliteRow> rows = {{int64_t{7}},
                                       {std::string("7")},
                                       {SqliteBlob{"7"}},
                                       {7.0},
                                       {std::monostate()},
                                       {std::string("7/7")},
                                       {std::string("7"), std::string("7")},
                                       {std::string("%37")},
                                       {std::string()}};
  for (const SqliteRow& row : rows) keys.insert(name_of_row("t", row));
  EXPECT_EQ(keys.size(), rows.size());
}

// Otherwise the parts of a row would not follow it in a range.
TEST(RowCodecTest, PartsFollowTheirRow) {
  std::set<std::string> keys;
  for (const char* name : {"a", "a-", "a.", "a0", "a!", "a\"", "a#", "a ", "ab", "a\x01", "a%"}) {
    const std::string key = name_of_row("t", {std::string(name)});
    for (size_t part = 0; part < 12; ++part) keys.insert(part_key(key, part));
  }
  std::string row;
  size_t part = 0;
  for (const std::string& key : keys) {
    if (key.find(kPartMark) == std::string::npos) {
      row = key;
      part = 0;
    }
    EXPECT_EQ(key, part_key(row, part++));
  }
}

TEST(KeyChangesTest, AreSplitWithinTheLimitsOfATransaction) {
  KeyChanges changes;
  for (size_t i = 0; i < 10'000; ++i) changes["k" + std::to_string(i)] = std::string(i % 500, 'x');
  changes["large"] = std::string(kValueBytesMax, 'x');
  changes["gone"] = std::nullopt;
  KeyChanges seen;
  const auto parts = split(changes);
  EXPECT_GT(parts.size(), 3U);
  for (const auto& part : parts) {
    etcdserverpb::TxnRequest request;
    add_operations(part, request);
    EXPECT_LE(request.ByteSizeLong(), kTxnBytesMax * 5 / 4);
    // etcd subtracts the operations of the outer level from its limit of 128 for the inner one.
    const int outer = request.success_size();
    EXPECT_LE(outer, 64);
    for (const auto& group : request.success())
      EXPECT_LE(group.request_txn().success_size(), 128 - outer - 3);
    for (const auto& operation : part.success()) {
      if (operation.has_request_put()) {
        seen[operation.request_put().key()] = operation.request_put().value();
      } else {
        seen[operation.request_delete_range().key()] = std::nullopt;
      }
    }
  }
  EXPECT_EQ(seen, changes);
  EXPECT_EQ(split({}).size(), 1U);
}

}  // namespace
}  // namespace muster::coordinator
