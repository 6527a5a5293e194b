#include "coordinator/core/sweep/sweep.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace muster::coordinator {
namespace {

constexpr std::string_view kAllReduce = "all_reduce";
constexpr const char* kOnlySlow =
    "; it is not excluded, because fewer than three other nodes of its kind were measured with it";
constexpr const char* kSlowLinks =
    "; it is not excluded, because only failures with three healthy nodes are a reason";

Duration seconds_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

const Measurement* find_measurement(const Measurements& measurements, std::string_view name) {
  const auto found = std::ranges::find(measurements, name, &Measurement::name);
  return found == measurements.end() ? nullptr : &*found;
}

}  // namespace

Sweep::Sweep(uint64_t id, SweepRequest request, const std::vector<WorkerName>& nodes,
             uint64_t first_id, int64_t unix_ns)
    : id_(id), request_(std::move(request)), started_unix_ns_(unix_ns), next_id_(first_id) {
  for (const WorkerName& name : nodes) nodes_[name];
}

void Sweep::skip(const WorkerName& name, std::string why) {
  SweptNode& node = nodes_[name];
  node.outcome = NodeOutcome::kSkipped;
  node.sentence = std::move(why);
}

std::optional<Instant> Sweep::deadline() const {
  return is_waiting() ? std::optional(deadline_) : std::nullopt;
}

void Sweep::add_finding(std::string finding) {
  if (findings_.size() < kFindingsMax) findings_.push_back(std::move(finding));
}

void Sweep::skip_pending(const WorkerName& name, const std::string& why) {
  const auto pending = pending_.find(name);
  if (pending == pending_.end()) return;
  if (stage_ == Stage::kNodes) {
    const std::string& failure = tries_[name].failure;
    skip(name, failure.empty() ? why : absl::StrCat(why, "; an earlier try failed: ", failure));
    tries_.erase(name);
  } else {
    GroupResult& result = groups_[pending->second.group];
    result.is_void = true;
    result.gone.insert(pending->second.node);
    nodes_[name].sentence = absl::StrCat("passed its own tests; its links were not tested: ", why);
  }
  pending_.erase(pending);
}

void Sweep::take(const WorkerName& name, uint64_t check, const NodeCheckResult& result,
                 const DeepCheckFigures& figures, int64_t unix_ns) {
  const auto pending = pending_.find(name);
  if (pending == pending_.end() || pending->second.check != check) return;
  if (figures.stopped) return skip_pending(name, result.sentence);
  if (stage_ == Stage::kNodes) {
    Tries& tries = tries_[name];
    tries.result = result;
    tries.result.passed = result.passed && !figures.wrong;
    if (!tries.result.passed) {
      ++tries.failures;
      tries.failure = result.sentence.empty() ? "it failed" : result.sentence;
    }
    if (!figures.kind.empty() && tries.best.kind != figures.kind)
      tries.best = {figures.kind, {}, false, false};
    merge_best(tries.best.measurements, figures.measurements);
    if (figures.wrong) {
      conclude(name, false, tries.failure, true, unix_ns);
      tries_.erase(name);
    }
  } else {
    GroupResult& group = groups_[pending->second.group];
    const Measurement* measured = find_measurement(figures.measurements, kAllReduce);
    const double value = measured == nullptr ? 0 : measured->value;
    group.gb_s = group.gb_s == 0 ? value : std::min(group.gb_s, value);
    // A wrong sum is named rather than the failures of its peers.
    if ((!result.passed || figures.wrong) &&
        (group.failure.empty() || (figures.wrong && !group.wrong)))
      group.failure = absl::StrCat(name.value(), ": ", result.sentence);
    group.wrong = group.wrong || figures.wrong;
  }
  pending_.erase(pending);
}

void Sweep::expire(IsLate is_late, Instant now, int64_t unix_ns) {
  if (!is_waiting() || now <= deadline_) return;
  std::vector<std::pair<WorkerName, uint64_t>> late;
  for (const auto& [name, pending] : pending_)
    if (is_late(name, deadline_)) late.emplace_back(name, pending.check);
  NodeCheckResult silence;
  silence.sentence = "it did not answer in time";
  for (const auto& [name, check] : late) take(name, check, silence, {}, unix_ns);
}

std::vector<SweepOrder> Sweep::order_tests(const std::vector<WorkerName>& names, Instant now) {
  const Duration time = kNodeTestsTime + kMeasurementsOfNode * seconds_of(request_.seconds);
  std::vector<SweepOrder> orders;
  for (const WorkerName& name : names) {
    const uint64_t check = next_id_++;
    pending_[name] = {check, 0, 0};
    ++tries_[name].count;
    orders.push_back({name, check, {request_.seconds, time, request_.storage_folder, {}}});
  }
  deadline_ = now + time + kSweepAnswerTime;
  return orders;
}

std::vector<SweepOrder> Sweep::advance(const CheckHistory& history, AddressOf address_of,
                                       Instant now, int64_t unix_ns) {
  if (stage_ == Stage::kBegin) {
    stage_ = Stage::kNodes;
    std::vector<WorkerName> names;
    for (const auto& [name, node] : nodes_)
      if (node.outcome == NodeOutcome::kChecking) names.push_back(name);
    return order_tests(names, now);
  }
  if (stage_ == Stage::kNodes) {
    std::vector<SweepOrder> orders = judge_nodes(history, now, unix_ns);
    if (!orders.empty()) return orders;
  }
  return next_links(address_of, now, unix_ns);
}

// Collects the measurements of the nodes that passed, and the newest ones of other nodes of their
// kinds.
void Sweep::gather_references(const CheckHistory& history) {
  swept_ = {};
  for (const auto& [name, tries] : tries_)
    if (tries.result.passed) swept_.add(tries.best.kind, tries.best.measurements);
  known_ = swept_;
  for (const auto& [name, checks] : history.all()) {
    const DeepCheckRecord* newest = newest_passed(checks);
    if (newest == nullptr || !known_.has(newest->kind)) continue;
    const auto swept = tries_.find(name);
    if (swept == tries_.end() || !swept->second.result.passed)
      known_.add_earlier(newest->kind, newest->measurements);
    else if (const Measurement* pair = find_measurement(newest->measurements, kAllReduce))
      known_.add(newest->kind, *pair);
  }
  swept_.finish();
  known_.finish();
}

// Returns the nodes that failed or are slow.
std::map<WorkerName, Judgement> Sweep::bad_nodes(const CheckHistory& history) const {
  std::map<WorkerName, Judgement> bad;
  for (const auto& [name, tries] : tries_) {
    Judgement verdict = tries.result.passed
                            ? slow_measurement(tries.best.kind, tries.best.measurements, swept_,
                                               known_, history.earlier(name, tries.best.kind))
                            : Judgement{tries.failure, true};
    if (!verdict.why.empty()) bad.emplace_hint(bad.end(), name, std::move(verdict));
  }
  return bad;
}

// Orders bad nodes to repeat their tests, or decides.
std::vector<SweepOrder> Sweep::judge_nodes(const CheckHistory& history, Instant now,
                                           int64_t unix_ns) {
  gather_references(history);
  const std::map<WorkerName, Judgement> bad = bad_nodes(history);
  std::vector<WorkerName> again;
  for (const auto& [name, verdict] : bad) {
    const Tries& tries = tries_.at(name);
    if (tries.count < kTriesMax && tries.failures < kFailuresMax) again.push_back(name);
  }
  if (!again.empty()) return order_tests(again, now);
  conclude_nodes(bad, unix_ns);
  begin_links();
  return {};
}

void Sweep::conclude_nodes(const std::map<WorkerName, Judgement>& bad, int64_t unix_ns) {
  size_t excluded = 0;
  std::map<std::string, size_t> of_kind, bad_of_kind;
  for (const auto& [name, tries] : tries_) {
    const auto found = bad.find(name);
    const bool excludes = found != bad.end() && found->second.excludes;
    excluded += excludes;
    if (tries.best.kind.empty()) continue;  // it failed before its device was known
    ++of_kind[tries.best.kind];
    bad_of_kind[tries.best.kind] += excludes;
  }
  const bool is_everywhere = excluded > excluded_max(tries_.size());
  const auto is_common = [&](const std::string& kind) {
    return is_everywhere || (!kind.empty() && bad_of_kind[kind] > excluded_max(of_kind[kind]));
  };
  size_t retained = 0;
  std::string first;
  for (const auto& [name, tries] : tries_) {
    const auto found = bad.find(name);
    if (found == bad.end()) {
      std::string sentence = tries.result.sentence;
      if (!tries.failure.empty())
        absl::StrAppend(&sentence, "; an earlier try failed: ", tries.failure);
      conclude(name, true, std::move(sentence), false, unix_ns);
      continue;
    }
    const auto& [why, excludes] = found->second;
    const bool common = excludes && is_common(tries.best.kind);
    if (common && retained++ == 0) first = absl::StrCat(name.value(), ": ", why);
    conclude(name, false, excludes ? why : absl::StrCat(why, kOnlySlow), excludes && !common,
             unix_ns);
  }
  if (retained > 0) {
    add_finding(absl::StrCat(retained, " of ", tries_.size(),
                             " nodes failed or are slow and are not excluded, because so many "
                             "have a common cause; the first is ",
                             first));
  }
}

// Sets the outcome of a node's own tests, or of its links.
void Sweep::conclude(const WorkerName& name, bool passed, std::string sentence, bool excludes,
                     int64_t unix_ns) {
  const Tries& tries = tries_.at(name);
  SweptNode& node = nodes_.at(name);
  node.outcome = passed ? NodeOutcome::kPassed : NodeOutcome::kFailed;
  node.sentence = sentence;
  node.record = {unix_ns,
                 passed,
                 tries.result.seconds,
                 std::move(sentence),
                 tries.best.kind,
                 tries.best.measurements};
  if (!passed) final_.push_back(name);
  if (excludes) exclusions_.push_back({name, node.sentence});
}

void Sweep::begin_links() {
  stage_ = Stage::kLinks;
  if (!request_.links) return;
  std::map<std::string, std::vector<WorkerName>> kinds;
  for (const auto& [name, node] : nodes_)
    if (node.outcome == NodeOutcome::kPassed) kinds[node.record->kind].push_back(name);
  for (auto& [kind, names] : kinds)
    if (names.size() > 1) kinds_.push_back({kind, std::move(names)});
}

std::vector<SweepOrder> Sweep::next_links(AddressOf address_of, Instant now, int64_t unix_ns) {
  if (search_ != nullptr && !groups_.empty()) search_->take(std::exchange(groups_, {}));
  while (!kinds_.empty()) {
    const Kind& kind = kinds_.front();
    if (search_ == nullptr) {
      const References::Usual* pair = known_.usual(kind.name, kAllReduce);
      search_ = std::make_unique<LinkSearch>(
          static_cast<int32_t>(kind.nodes.size()), kRingMax,
          pair != nullptr && pair->count >= kReferencePairs ? pair->median : 0);
    }
    std::vector<SweepOrder> orders;
    deadline_ = now;
    for (const NodeGroup& nodes : search_->next_round()) {
      GroupSeat seat;
      seat.size = static_cast<int32_t>(nodes.size());
      seat.id = static_cast<uint32_t>(next_id_++);
      const Duration time = kGroupTestTime + seat.size * kGroupTimePerNode +
                            kMeasurementsOfGroup * seconds_of(request_.seconds);
      deadline_ = std::max(deadline_, now + time + kSweepAnswerTime);
      for (const NodeIndex node : nodes) {
        const WorkerName& name = kind.nodes[static_cast<size_t>(node)];
        if (seat.rank == 0) seat.rendezvous_address = address_of(name);
        const uint64_t check = next_id_++;
        pending_[name] = {check, groups_.size(), node};
        orders.push_back({name, check, {request_.seconds, time, "", seat}});
        ++seat.rank;
      }
      groups_.emplace_back();
    }
    if (!orders.empty()) {
      ++rounds_;
      return orders;
    }
    conclude_links(unix_ns);
    search_.reset();
    kinds_.pop_front();
  }
  stage_ = Stage::kOver;
  ended_unix_ns_ = unix_ns;
  for (const auto& [name, node] : nodes_)
    if (node.outcome == NodeOutcome::kPassed) final_.push_back(name);
  return {};
}

// Takes the findings of the search for the first kind.
void Sweep::conclude_links(int64_t unix_ns) {
  const std::vector<WorkerName>& names = kinds_.front().nodes;
  const auto name_at = [&](NodeIndex node) { return names[static_cast<size_t>(node)].value(); };
  const std::vector<LinkFinding>& findings = search_->findings();
  const auto bad = static_cast<size_t>(std::ranges::count(findings, true, &LinkFinding::excludes));
  const bool many = bad > excluded_max(names.size());
  for (const LinkFinding& finding : findings) {
    if (finding.peer >= 0) {
      add_finding(absl::StrCat("the link between ", name_at(finding.node), " and ",
                               name_at(finding.peer), " is bad: ", finding.what,
                               finding.is_narrow
                                   ? "; both nodes work with others"
                                   : "; no third node could show which of the two is the cause"));
      continue;
    }
    conclude(names[static_cast<size_t>(finding.node)], false,
             absl::StrCat("all-reduce with healthy nodes: ", finding.what,
                          finding.excludes ? "" : kSlowLinks),
             finding.excludes && !many, unix_ns);
    if (many && finding.excludes)
      add_finding(absl::StrCat(name_at(finding.node), " is not excluded, because ", bad,
                               " nodes have the same fault: ", finding.what));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (const auto gb_s = search_->pair_gb_s(static_cast<NodeIndex>(i)))
      nodes_.at(names[i]).record->measurements.push_back({std::string(kAllReduce), *gb_s, "GB/s"});
  }
  for (const WrongSum& wrong : search_->wrong_sums()) {
    const auto add_name = [&](std::string* out, NodeIndex node) { out->append(name_at(node)); };
    add_finding(absl::StrCat("an all-reduce of ", absl::StrJoin(wrong.nodes, ", ", add_name),
                             " returned a wrong sum: ", wrong.what));
  }
  if (const auto& common = search_->common_fault()) {
    add_finding(absl::StrCat(common->pairs, " pairs of the ", names.size(),
                             " nodes failed or were slow, so their network may be the cause; the "
                             "first is ",
                             name_at(common->node), " with ", name_at(common->peer), ": ",
                             common->what));
  }
  if (search_->unexplained() > 0)
    add_finding(absl::StrCat("an all-reduce of many of the ", names.size(),
                             " nodes failed or was slow, and no smaller group of them was"));
}

std::string Sweep::stage_text() const {
  if (stage_ == Stage::kBegin || stage_ == Stage::kNodes)
    return absl::StrCat(pending_.size(), " nodes test themselves");
  if (stage_ == Stage::kLinks)
    return absl::StrCat("round ", rounds_, " of all-reduces: ", groups_.size(), " groups");
  std::map<NodeOutcome, int> counts;
  for (const auto& [name, node] : nodes_) ++counts[node.outcome];
  return absl::StrCat(counts[NodeOutcome::kPassed], " nodes passed, ", counts[NodeOutcome::kFailed],
                      " failed, ", counts[NodeOutcome::kSkipped], " skipped");
}

}  // namespace muster::coordinator
