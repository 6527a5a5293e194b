#include "coordinator/core/sweep/link_search.h"

#include <algorithm>
#include <numeric>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace muster::coordinator {
namespace {

NodeGroup joined_groups(const NodeGroup& left, const NodeGroup& right) {
  NodeGroup all = left;
  all.insert(all.end(), right.begin(), right.end());
  return all;
}

std::pair<NodeGroup, NodeGroup> halves(const NodeGroup& nodes) {
  const auto middle = nodes.begin() + static_cast<std::ptrdiff_t>((nodes.size() + 1) / 2);
  return {NodeGroup(nodes.begin(), middle), NodeGroup(middle, nodes.end())};
}

}  // namespace

LinkSearch::LinkSearch(int32_t nodes, int32_t ring_max, double reference)
    : nodes_(nodes), ring_max_(std::max(ring_max, 2)), given_reference_(reference) {
  if (nodes < 2) {
    stage_ = Stage::kOver;
    return;
  }
  for (NodeIndex i = 0; i + 1 < nodes; i += 2) add({.nodes = {i, i + 1}});
  if (nodes % 2 == 1) add({.nodes = {nodes - 1, 0}});
  // A bad one of three nodes is in two bad pairs; the third pair shows which one it is.
  if (nodes == 3) add({.nodes = {1, 2}});
}

double LinkSearch::reference() const {
  if (pairs_.size() < kReferencePairs) return given_reference_;
  std::vector<double> sorted = pairs_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

std::optional<double> LinkSearch::pair_gb_s(NodeIndex node) const {
  const auto known = pair_of_.find(node);
  return known == pair_of_.end() ? std::nullopt : std::optional(known->second);
}

// Removes the nodes that are gone. Returns whether the test still shows something.
bool LinkSearch::remove_gone(Test& test) const {
  for (NodeGroup* group : {&test.nodes, &test.left, &test.right})
    std::erase_if(*group, [this](NodeIndex node) { return gone_.contains(node); });
  if (test.purpose == Purpose::kPartner && gone_.contains(test.suspect)) return false;
  if (test.purpose == Purpose::kCrossing && (test.left.empty() || test.right.empty())) return false;
  return test.nodes.size() > 1;
}

const std::vector<NodeGroup>& LinkSearch::next_round() {
  round_.clear();
  running_.clear();
  while (stage_ != Stage::kOver) {
    std::set<NodeIndex> busy;
    std::deque<Test> later;
    for (Test& test : std::exchange(queue_, {})) {
      if (!remove_gone(test)) {
        close(test.split, false);
        continue;
      }
      const bool is_free =
          std::ranges::none_of(test.nodes, [&](NodeIndex node) { return busy.contains(node); });
      if (!is_free) {
        later.push_back(std::move(test));
        continue;
      }
      busy.insert(test.nodes.begin(), test.nodes.end());
      round_.push_back(test.nodes);
      running_.push_back(std::move(test));
    }
    // close() may have added tests.
    for (Test& test : later) queue_.push_back(std::move(test));
    if (!round_.empty()) break;
    if (!queue_.empty()) continue;
    if (stage_ == Stage::kPairs)
      begin_rings();
    else if (stage_ == Stage::kRings)
      begin_partners();
    else if (stage_ == Stage::kPartners)
      begin_links();
    else
      conclude();
  }
  return round_;
}

// Returns the reason for which the result is bad; empty: it is good.
std::string LinkSearch::badness(const Test& test, const GroupResult& result, double usual) const {
  if (!result.failure.empty()) return result.failure;
  const double limit = usual * (test.nodes.size() == 2 ? kSlowPair : kSlowRing);
  if (result.gb_s >= limit) return "";
  return absl::StrFormat("%.3g GB/s instead of %.3g GB/s", result.gb_s, usual);
}

void LinkSearch::take(const std::vector<GroupResult>& results) {
  std::vector<Test> tests = std::move(running_);
  running_.clear();
  for (size_t i = 0; i < tests.size(); ++i) {
    gone_.insert(results[i].gone.begin(), results[i].gone.end());
    if (results[i].wrong) wrong_sums_.push_back({tests[i].nodes, results[i].failure});
    // All pairs of a round are compared with their median.
    const bool is_measured = !results[i].is_void && results[i].failure.empty();
    if (tests[i].purpose != Purpose::kPair || !is_measured) continue;
    // The pair of the last of an odd number of nodes shares a node with another pair.
    const bool is_own = tests[i].nodes[0] < tests[i].nodes[1];
    if (tests[i].bad_times == 0 && is_own) pairs_.push_back(results[i].gb_s);
    for (const NodeIndex node : tests[i].nodes)
      pair_of_[node] = std::max(pair_of_[node], results[i].gb_s);
  }
  const double usual = reference();
  for (size_t i = 0; i < tests.size(); ++i) {
    const GroupResult& result = results[i];
    if (result.is_void) {
      repeat_void(std::move(tests[i]));
      continue;
    }
    std::string bad = badness(tests[i], result, usual);
    const Purpose purpose = tests[i].purpose;
    const bool decides = purpose == Purpose::kPartner || purpose == Purpose::kLink;
    const int needed = decides ? kDecidingTestsMin : kBadTestsMin;
    const bool is_partner = purpose == Purpose::kPartner;
    if (is_partner && !result.failure.empty()) tests[i].failed_with.insert(tests[i].nodes[1]);
    const bool repeats = ++tests[i].bad_times < needed && (is_partner || !result.wrong);
    if (bad.empty() || !repeats)
      finish(tests[i], std::move(bad));
    else if (is_partner)
      add_partner_test(std::move(tests[i]));
    else
      add(std::move(tests[i]));
  }
}

// A test shows nothing if one of its nodes is gone. Each repetition has fewer nodes.
void LinkSearch::repeat_void(Test test) {
  switch (test.purpose) {
    case Purpose::kPair:  // the ring tests the other node
    case Purpose::kLink:
      return;
    case Purpose::kPartner:
      return add_partner_test(std::move(test));
    case Purpose::kRing:
    case Purpose::kHalf:
    case Purpose::kCrossing:
      add(std::move(test));
  }
}

// Takes the conclusion of a test. `bad`: the reason; empty: it is good.
void LinkSearch::finish(const Test& test, std::string bad) {
  const bool is_bad = !bad.empty();
  switch (test.purpose) {
    case Purpose::kPair:
      if (is_bad)
        suspect(test.nodes[0], test.nodes[1], std::move(bad));
      else
        in_good_pair_.insert(test.nodes.begin(), test.nodes.end());
      return;
    case Purpose::kPartner:
      partner_results_.emplace(test.suspect, LinkFinding{.node = test.suspect,
                                                         .excludes = test.failed_with.size() >=
                                                                     size_t{kDecidingTestsMin},
                                                         .what = std::move(bad)});
      return;
    case Purpose::kRing:
      if (is_bad) bisect(test.nodes, std::move(bad));
      return;
    case Purpose::kLink:
      if (is_bad) suspects_[test.pair] = {test.nodes[0], test.nodes[1], std::move(bad), true};
      return;
    case Purpose::kHalf:
    case Purpose::kCrossing:
      break;
  }
  if (is_bad && test.nodes.size() == 2)
    suspect(test.nodes[0], test.nodes[1], std::move(bad));
  else if (is_bad && test.purpose == Purpose::kHalf)
    bisect(test.nodes, std::move(bad));
  else if (is_bad)
    cross(test.left, test.right);
  close(test.split, is_bad);
}

// Tests the halves of a bad group of at least three nodes, or suspects a pair.
void LinkSearch::bisect(const NodeGroup& nodes, std::string bad) {
  if (nodes.size() == 2) return suspect(nodes[0], nodes[1], std::move(bad));
  if (splits_.size() >= kSplitsPerNode * static_cast<size_t>(nodes_)) {
    ++unexplained_;
    return;
  }
  auto [left, right] = halves(nodes);
  const auto split = static_cast<int>(splits_.size());
  splits_.push_back({left, right, Purpose::kHalf, 0, false});
  for (NodeGroup* half : {&left, &right}) {
    if (half->size() < 2) continue;
    ++splits_.back().open;
    add({.nodes = std::move(*half), .purpose = Purpose::kHalf, .split = split});
  }
}

// Tests the parts of two good groups that are bad together.
void LinkSearch::cross(const NodeGroup& left, const NodeGroup& right) {
  if (splits_.size() >= kSplitsPerNode * static_cast<size_t>(nodes_)) {
    ++unexplained_;
    return;
  }
  const auto split = static_cast<int>(splits_.size());
  splits_.push_back({left, right, Purpose::kCrossing, 0, false});
  const auto [left_first, left_second] = halves(left);
  const auto [right_first, right_second] = halves(right);
  using Pair = std::pair<const NodeGroup*, const NodeGroup*>;
  for (const auto& [one, other] :
       {Pair(&left_first, &right_first), Pair(&left_second, &right_second),
        Pair(&left_first, &right_second), Pair(&left_second, &right_first)}) {
    if (one->empty() || other->empty()) continue;
    ++splits_[static_cast<size_t>(split)].open;
    add({.nodes = joined_groups(*one, *other),
         .purpose = Purpose::kCrossing,
         .split = split,
         .left = *one,
         .right = *other});
  }
}

// Counts a concluded test of the split. If no part of it is bad, the fault lies between the parts.
void LinkSearch::close(int split, bool bad) {
  if (split < 0) return;
  Split& parts = splits_[static_cast<size_t>(split)];
  parts.any_bad = parts.any_bad || bad;
  if (--parts.open > 0 || parts.any_bad) return;
  if (parts.purpose == Purpose::kCrossing) {
    // A node that is gone may have been the cause.
    const bool is_gone =
        std::ranges::any_of(joined_groups(parts.left, parts.right),
                            [this](NodeIndex node) { return gone_.contains(node); });
    if (!is_gone) ++unexplained_;
    return;
  }
  const NodeGroup left = parts.left, right = parts.right;
  cross(left, right);
}

void LinkSearch::suspect(NodeIndex a, NodeIndex b, std::string what) {
  const auto [first, second] = std::minmax(a, b);
  if (suspected_pairs_.emplace(first, second).second)
    suspects_.push_back({first, second, std::move(what), false});
}

void LinkSearch::begin_rings() {
  stage_ = Stage::kRings;
  if (nodes_ == 2) return;
  std::set<NodeIndex> suspected;
  for (const SuspectPair& pair : suspects_) suspected.insert({pair.a, pair.b});
  NodeGroup ring;
  const auto flush = [&] {
    if (ring.size() > 1) add({.nodes = ring, .purpose = Purpose::kRing});
    ring.clear();
  };
  for (NodeIndex node = 0; node < nodes_; ++node) {
    if (suspected.contains(node) || gone_.contains(node)) continue;
    ring.push_back(node);
    if (static_cast<int32_t>(ring.size()) == ring_max_) flush();
  }
  flush();
}

// Tests each node of a suspect pair with a node without suspicion; if all are suspect, with one
// that is in a good pair.
void LinkSearch::begin_partners() {
  stage_ = Stage::kPartners;
  if (suspects_.size() > std::max(kBadPairsMax, static_cast<size_t>(nodes_) / kBadPairsShare)) {
    const SuspectPair& first = suspects_.front();
    common_fault_ = {suspects_.size(), first.a, first.b, first.what};
    suspects_.clear();
    return;
  }
  std::set<NodeIndex> suspected;
  for (const SuspectPair& pair : suspects_) suspected.insert({pair.a, pair.b});
  for (NodeIndex node = 0; node < nodes_; ++node)
    if (!suspected.contains(node)) healthy_.push_back(node);
  if (healthy_.empty()) healthy_.assign(in_good_pair_.begin(), in_good_pair_.end());
  for (const NodeIndex node : suspected)
    if (!gone_.contains(node)) add_partner_test({.purpose = Purpose::kPartner, .suspect = node});
}

// Each test has another partner if there is one, because the link to one of them may be bad, too.
void LinkSearch::add_partner_test(Test test) {
  std::optional<NodeIndex> found;
  for (size_t i = 0; i < healthy_.size(); ++i) {
    const NodeIndex partner = healthy_[next_partner_++ % healthy_.size()];
    if (partner == test.suspect || gone_.contains(partner)) continue;
    if (!found || test.failed_with.contains(*found)) found = partner;
    if (!test.failed_with.contains(*found)) break;
  }
  if (!found) return;
  test.nodes = {test.suspect, *found};
  add(std::move(test));
}

// Tests the suspect pairs again that no bad node explains.
void LinkSearch::begin_links() {
  stage_ = Stage::kLinks;
  const auto is_bad = [&](NodeIndex node) {
    const auto result = partner_results_.find(node);
    return result != partner_results_.end() && !result->second.what.empty();
  };
  for (size_t i = 0; i < suspects_.size(); ++i) {
    const SuspectPair& pair = suspects_[i];
    if (is_bad(pair.a) || is_bad(pair.b)) continue;
    add({.nodes = {pair.a, pair.b}, .purpose = Purpose::kLink, .pair = i});
  }
}

void LinkSearch::conclude() {
  stage_ = Stage::kOver;
  for (const auto& [node, finding] : partner_results_)
    if (!finding.what.empty()) findings_.push_back(finding);
  for (const SuspectPair& pair : suspects_) {
    if (!pair.is_confirmed) continue;
    const bool is_narrow = partner_results_.contains(pair.a) && partner_results_.contains(pair.b);
    findings_.push_back(
        {.node = pair.a, .peer = pair.b, .is_narrow = is_narrow, .what = pair.what});
  }
}

}  // namespace muster::coordinator
