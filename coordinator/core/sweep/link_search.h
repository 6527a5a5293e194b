// Finds the nodes and links that make all-reduces between nodes fail or slow, by group testing: a
// test is an all-reduce of some nodes, and tests of disjoint nodes run at the same time.
//
//   pairs      every node with its neighbour; the median bandwidth is the reference
//   rings      all nodes outside bad pairs together, at most `ring_max` in one ring
//   halves     the halves of a bad ring, and so on down to bad pairs
//   crossings  if both halves of a bad ring are good, a link between them is bad: the quarters of
//              one half with those of the other one
//   partners   each node of a bad pair with nodes without suspicion, one after the other: a node
//              that is bad with all of them is bad itself; if it fails with three of them, and
//              is not only slow, it is to be excluded
//   links      bad pairs of good nodes again: their link is bad
//
// A result counts as bad only if it repeats, and a finding needs two groups, so noise leads to no
// finding. A wrong sum is no noise: it counts at once, and is reported with its group. A test that
// a job or a lost worker has ended is repeated without the nodes that are gone. A single fault
// among n nodes takes O(log n) rounds. If so many pairs are bad that their common cause is
// elsewhere, the search ends after the rings. The caller numbers the nodes. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace muster::coordinator {

// A pair or a ring is slow below this part of the median pair. A ring may share a slower part of
// the network between more nodes.
constexpr double kSlowPair = 0.5;
constexpr double kSlowRing = 0.25;
// The number of good pairs whose median is a reference.
constexpr size_t kReferencePairs = 3;
// The number of times that a test must be bad, and that of the tests that decide about a node or a
// link.
constexpr int kBadTestsMin = 2;
constexpr int kDecidingTestsMin = 3;
// More bad pairs than this number, and than this part of the nodes, have a common cause.
constexpr size_t kBadPairsMax = 4;
constexpr size_t kBadPairsShare = 4;
// A bound of the bad groups that are divided, for each node: a single fault divides O(log n).
constexpr size_t kSplitsPerNode = 2;

using NodeIndex = int32_t;
using NodeGroup = std::vector<NodeIndex>;

// The result of one test.
struct GroupResult {
  bool is_void = false;  // a node was needed by a job or lost: the test shows nothing
  std::set<NodeIndex> gone{};
  std::string failure{};  // empty: the all-reduce was correct
  bool wrong = false;     // the sum was wrong, as `failure` describes
  double gb_s = 0;        // bandwidth of the slowest rank
};

struct LinkFinding {
  NodeIndex node = 0;
  NodeIndex peer = -1;  // -1: the node itself is bad; else the link, or one of the two nodes
  // false: no healthy third node could show whether a node or the link is bad
  bool is_narrow = true;
  bool excludes = false;  // the node fails with so many others that it is to be excluded
  std::string what{};     // "the all-reduce failed: …", "0.1 GB/s instead of 11.8 GB/s"

  friend bool operator==(const LinkFinding&, const LinkFinding&) = default;
};

// Bad pairs with a common cause, such as a switch, and the first one of them.
struct CommonFault {
  size_t pairs = 0;
  NodeIndex node = 0, peer = 0;
  std::string what{};
};

// A group whose all-reduce returned a wrong sum.
struct WrongSum {
  NodeGroup nodes{};
  std::string what{};
};

class LinkSearch {
 public:
  // Searches among the nodes 0 … `nodes` - 1. `reference`: the usual bandwidth of a pair; 0:
  // unknown.
  LinkSearch(int32_t nodes, int32_t ring_max, double reference);

  // Returns the tests of the next round, which have no node in common; empty: the search is over.
  // Requires that take() has received the results of the previous round.
  const std::vector<NodeGroup>& next_round();
  // Takes the results of the round, in the order of its tests.
  void take(const std::vector<GroupResult>& results);

  const std::vector<LinkFinding>& findings() const { return findings_; }
  // Returns the bad pairs whose common cause was not searched.
  const std::optional<CommonFault>& common_fault() const { return common_fault_; }
  // Returns the groups with wrong sums, whatever their repetitions returned.
  const std::vector<WrongSum>& wrong_sums() const { return wrong_sums_; }
  // Returns the number of rings that were bad and whose cause did not show in smaller groups.
  int unexplained() const { return unexplained_; }
  // Returns the bandwidth of the node's pair; nullopt: it was not measured.
  std::optional<double> pair_gb_s(NodeIndex node) const;

 private:
  enum class Purpose : uint8_t { kPair, kRing, kHalf, kCrossing, kPartner, kLink };
  // The tests that were made of one group, to be concluded together.
  struct Split {
    NodeGroup left, right;
    Purpose purpose = Purpose::kHalf;
    int open = 0;
    bool any_bad = false;
  };
  struct Test {
    NodeGroup nodes{};
    Purpose purpose = Purpose::kPair;
    int split = -1;                     // index into splits_; -1: none
    NodeGroup left{}, right{};          // the parts of a crossing
    NodeIndex suspect = -1;             // the node that kPartner tests
    std::set<NodeIndex> failed_with{};  // partners with which it failed, rather than being slow
    size_t pair = 0;                    // index into suspects_, for kLink
    int bad_times = 0;
  };
  struct SuspectPair {
    NodeIndex a = 0, b = 0;
    std::string what;
    bool is_confirmed = false;
  };

  bool remove_gone(Test& test) const;
  void repeat_void(Test test);
  void add_partner_test(Test test);
  void add(Test test) { queue_.push_back(std::move(test)); }
  void begin_rings();
  void begin_partners();
  void begin_links();
  void conclude();
  void bisect(const NodeGroup& nodes, std::string bad);
  void cross(const NodeGroup& left, const NodeGroup& right);
  void suspect(NodeIndex a, NodeIndex b, std::string what);
  void finish(const Test& test, std::string bad);
  void close(int split, bool bad);
  std::string badness(const Test& test, const GroupResult& result, double usual) const;
  double reference() const;

  const int32_t nodes_;
  const int32_t ring_max_;
  const double given_reference_;
  enum class Stage : uint8_t { kPairs, kRings, kPartners, kLinks, kOver } stage_ = Stage::kPairs;
  std::deque<Test> queue_;
  std::vector<Test> running_;
  std::vector<NodeGroup> round_;
  std::vector<Split> splits_;
  std::set<NodeIndex> gone_;
  std::vector<double> pairs_;  // bandwidths of the first pairs
  std::map<NodeIndex, double> pair_of_;
  std::vector<SuspectPair> suspects_;
  std::set<std::pair<NodeIndex, NodeIndex>> suspected_pairs_;
  std::set<NodeIndex> in_good_pair_;
  std::vector<NodeIndex> healthy_;  // partners
  size_t next_partner_ = 0;
  std::map<NodeIndex, LinkFinding> partner_results_;  // no reason: good with its partner
  std::vector<WrongSum> wrong_sums_;
  std::vector<LinkFinding> findings_;
  std::optional<CommonFault> common_fault_;
  int unexplained_ = 0;
};

}  // namespace muster::coordinator
