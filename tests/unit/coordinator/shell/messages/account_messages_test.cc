#include "coordinator/shell/messages/account_messages.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/coordinator/shell/full_account.h"

namespace muster::coordinator {
namespace {

using nlohmann::json;

TEST(AccountRecord, KeepsEverything) {
  EXPECT_EQ(account_from_json(account_to_json(full_account())), full_account());
}

TEST(AccountRecord, OfAnEarlierVersionIsEmpty) {
  EXPECT_EQ(account_from_json(json::object()), Account{});
}

TEST(AccountRecord, MayHoldWordsOfALaterVersion) {
  const json later = json::parse(R"({"mode": "dancing", "cause": "moonquake", "settled":
      [{"what": "sleeping", "cause": "moonquake", "ns": 5}]})");
  const Account account = account_from_json(later);
  EXPECT_EQ(account.settled.wall(), Duration(5)) << "the time is retained";
  EXPECT_EQ(account.cause, LossCause::kNone);
}

TEST(Goodput, HasAllTimeInOneMessage) {
  v1::Goodput goodput;
  goodput_to_proto(full_account(), goodput);
  EXPECT_EQ(goodput.queued_ns(), 5'000'000'000);
  EXPECT_EQ(goodput.wall_ns(), 24'000'000'000);
  EXPECT_EQ(goodput.productive_ns(), 17'000'000'000);
  ASSERT_EQ(goodput.losses_size(), 2);
  EXPECT_EQ(goodput.losses(0).what(), "stopping") << "the largest loss first";
  EXPECT_EQ(goodput.losses(0).cause(), "hang");
  EXPECT_EQ(goodput.losses(1).cause(), "preempted");
}

}  // namespace
}  // namespace muster::coordinator
