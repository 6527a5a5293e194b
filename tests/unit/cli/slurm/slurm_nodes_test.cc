#include "cli/slurm/slurm_nodes.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using What = NodeOrder::What;

v1::ListWorkersResponse workers(const std::vector<std::string>& names) {
  v1::ListWorkersResponse response;
  for (const std::string& name : names) {
    v1::WorkerInfo* worker = response.add_workers();
    worker->set_name(name);
    worker->set_connected(true);
  }
  return response;
}

std::vector<std::pair<std::string, What>> summary(const std::vector<NodeOrder>& orders) {
  std::vector<std::pair<std::string, What>> out;
  out.reserve(orders.size());
  for (const NodeOrder& order : orders) out.emplace_back(order.node, order.what);
  return out;
}

const SlurmNode kGood1{"node1", "a", "ALLOCATED", ""};
const SlurmNode kGood2{"node2", "a", "ALLOCATED", ""};
const SlurmNode kDrained2{"node2", "a", "ALLOCATED+DRAIN", "a fan"};
const SlurmNode kGood3{"node3", "a", "ALLOCATED", ""};

TEST(NodeOrders, ADrainedNodeIsEvacuatedOnceIfThereIsAnotherPlace) {
  const auto all = workers({"node1", "node2", "node3"});
  const auto orders = node_orders({kGood1, kDrained2, kGood3}, all, 2, {});
  EXPECT_EQ(summary(orders),
            (std::vector<std::pair<std::string, What>>{{"node2", What::kEvacuate}}));
  EXPECT_EQ(orders[0].reason, "Slurm: ALLOCATED+DRAIN, a fan");
  EXPECT_TRUE(node_orders({kGood1, kDrained2, kGood3}, all, 2, {{"node2", "reported"}}).empty());
}

TEST(NodeOrders, ADrainedNodeIsOnlyExcludedIfThereIsNoOtherPlace) {
  EXPECT_EQ(summary(node_orders({kGood1, kDrained2}, workers({"node1", "node2"}), 2, {})),
            (std::vector<std::pair<std::string, What>>{{"node2", What::kExclude}}));
  // An excluded, leaving or disconnected worker does not count.
  auto others = workers({"node1", "node2", "node3"});
  others.mutable_workers(2)->set_leaving(true);
  EXPECT_EQ(summary(node_orders({kGood1, kDrained2, kGood3}, others, 2, {}))[0].second,
            What::kExclude);
  others.mutable_workers(2)->set_leaving(false);
  others.mutable_workers(2)->mutable_exclusion();
  EXPECT_EQ(summary(node_orders({kGood1, kDrained2, kGood3}, others, 2, {}))[0].second,
            What::kExclude);
}

TEST(NodeOrders, ARecoveredNodeIsAdmittedAndOthersAreNot) {
  EXPECT_EQ(summary(node_orders({kGood1, kGood2}, workers({"node1", "node2"}), 2,
                                {{"node2", "reported"}})),
            (std::vector<std::pair<std::string, What>>{{"node2", What::kAdmit}}));
  EXPECT_TRUE(node_orders({kGood1, kDrained2}, workers({"node1"}), 1, {}).empty());
}

TEST(UsableWorkers, AreConnectedAndNotExcluded) {
  auto all = workers({"node1", "node2", "node3", "node4"});
  EXPECT_EQ(usable_workers(all), 4);
  all.mutable_workers(0)->set_connected(false);
  all.mutable_workers(1)->set_leaving(true);
  all.mutable_workers(2)->mutable_exclusion();
  EXPECT_EQ(usable_workers(all), 1);
}

}  // namespace
}  // namespace muster::cli
