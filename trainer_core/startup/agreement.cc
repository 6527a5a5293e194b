#include "trainer_core/startup/agreement.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/random/fnv.h"
#include "common/text/absl_view.h"
#include "common/text/number_text.h"
#include "trainer_core/base/tensor_views.h"
#include "trainer_core/comm/exact_floats.h"
#include "trainer_core/comm/group_texts.h"

namespace muster::trainer {
namespace {

// The header that the first rank along data broadcasts: the code of its error, whether there is a
// checkpoint, and the checkpoint's step and samples.
constexpr size_t kHeaderNumbers = 2 + 2 * kFloatsPerU64;

absl::StatusOr<std::optional<RestoredAt>> restore_from_disk(CheckpointPeers* readers,
                                                            const CheckpointStore& store,
                                                            const CheckpointJudge& judge,
                                                            RankModel& rank_model,
                                                            std::ostream& log) {
  const bool leads = readers == nullptr || readers->rank() == 0;
  std::vector<std::string> notes;
  const auto newest = store.restore_newest(rank_model.plan().checkpoint_layout(),
                                           rank_model.host_state(), notes, readers, judge);
  for (const std::string& note : notes) log << note << std::endl;
  if (!newest.ok() && !leads)
    return absl::Status(newest.status().code(),
                        "rank 0 could not restore the checkpoint; see its log");
  if (!newest.ok()) return newest.status();
  if (!newest->has_value()) return std::nullopt;
  const CheckpointInfo& info = **newest;
  if (leads) {
    log << "restored checkpoint " << info.folder << ": "
        << counted(static_cast<uint64_t>(info.step), "step") << " completed" << std::endl;
  }
  return RestoredAt{info.step, info.samples, info.evaluation, info.spikes};
}

// The fingerprints of all ranks, in rank order.
class Fingerprints {
 public:
  static absl::StatusOr<Fingerprints> gather(ProcessGroup& group,
                                             const std::vector<uint64_t>& mine) {
    std::vector<int32_t> own;
    for (const uint64_t value : mine) {
      own.push_back(std::bit_cast<int32_t>(static_cast<uint32_t>(value)));
      own.push_back(std::bit_cast<int32_t>(static_cast<uint32_t>(value >> 32)));
    }
    std::vector<int32_t> all(own.size() * static_cast<size_t>(group.size()));
    if (auto status = group.all_gather(own, all, "fingerprints"); !status.ok()) return status;
    return Fingerprints(std::move(all), own.size());
  }

  // Returns the index of the first fingerprint in which the two ranks differ.
  std::optional<size_t> first_difference(int a, int b) const {
    const auto theirs = of(b);
    const auto [at, other] = std::ranges::mismatch(of(a), theirs);
    if (other == theirs.end()) return std::nullopt;
    return static_cast<size_t>(other - theirs.begin()) / 2;
  }

 private:
  Fingerprints(std::vector<int32_t> all, size_t each) : all_(std::move(all)), each_(each) {}
  std::span<const int32_t> of(int rank) const {
    return std::span(all_).subspan(static_cast<size_t>(rank) * each_, each_);
  }

  std::vector<int32_t> all_;
  size_t each_;  // int32 values per rank
};

// Returns the first key in which two configs differ: "learning_rate is 0.003 there and 0.0001
// here".
std::string first_difference(const nlohmann::json& there, const nlohmann::json& here,
                             const std::string& prefix = "") {
  for (const auto* both : {&there, &here}) {
    for (const auto& item : both->items()) {
      const nlohmann::json none;
      const auto in = [&](const nlohmann::json& config) -> const nlohmann::json& {
        const auto found = config.find(item.key());
        return found == config.end() ? none : *found;
      };
      const nlohmann::json &a = in(there), &b = in(here);
      if (a == b) continue;
      const std::string key = prefix + item.key();
      if (a.is_object() && b.is_object()) return first_difference(a, b, key + ".");
      return absl::StrCat(key, " is ", a.dump(), " there and ", b.dump(), " here");
    }
  }
  return "an unnamed value";
}

// Returns a fingerprint of the random numbers of this build: some initial values of each parameter.
uint64_t values_fingerprint(const TrainConfig& config) {
  constexpr int64_t kValues = 8;
  std::string bytes;
  for (const ParamSpec& spec : model_params(config.model)) {
    TensorBox box = whole_box(spec);
    for (int64_t& extent : box.extent) extent = 1;
    box.extent.back() = std::min(kValues, spec.shape.back());
    std::array<float, kValues> values{};
    init_part(spec, config.init_weights_seed, box, values.data());
    bytes.append(reinterpret_cast<const char*>(values.data()), sizeof(values));
  }
  return fnv1a(bytes);
}

absl::Status disagrees(int rank, std::string_view what, int other, std::string_view difference,
                       std::string_view remedy) {
  return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " ", av(what), " rank ", other,
                                                 av(difference), "; ", av(remedy)));
}

// Returns a hash of the codes and scales of weights in blocks.
uint64_t hash_of(Ops& ops, const WeightBlocks& blocks) {
  constexpr int64_t kPartBytes = int64_t{32} << 20;  // a multiple of a scale's bytes
  std::string part;
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const Tensor& tensor : {blocks.codes, blocks.scales}) {
    const auto bytes = static_cast<int64_t>(dtype_bytes(tensor.dtype));
    for (int64_t first = 0; first < tensor.elements(); first += kPartBytes / bytes) {
      const int64_t count = std::min(kPartBytes / bytes, tensor.elements() - first);
      part.resize(static_cast<size_t>(count * bytes));
      ops.download(tensor_at(tensor, first, {count}), part.data());
      XXH3_64bits_update(&state, part.data(), part.size());
    }
  }
  return XXH3_64bits_digest(&state);
}

// Returns a fingerprint of each piece of this rank: of those that are trained, of those that are
// frozen, and of those that are stored in blocks.
std::vector<uint64_t> piece_fingerprints(RankModel& rank_model) {
  const auto& sharding = rank_model.plan().model.sharding;
  std::vector<uint64_t> sums;
  const auto add = [&](double sum) { sums.push_back(std::bit_cast<uint64_t>(sum)); };
  Ops& ops = rank_model.ops();
  for (const ShardPiece& piece : sharding.layout.pieces())
    add(ops.sum(rank_model.model().parameters(piece)));
  for (const ShardPiece& piece : sharding.frozen.pieces()) {
    add(ops.sum(tensor_at(rank_model.model().frozen_parameters(), piece.offset, {piece.count})));
  }
  for (const ShardPiece& piece : sharding.quantized.pieces())
    sums.push_back(hash_of(ops, rank_model.weight_blocks().at(piece.offset, piece.count)));
  return sums;
}

// Returns the name of the parameter of a piece, by its index among the fingerprints.
std::string piece_name(const RankModel& rank_model, size_t index) {
  const auto& sharding = rank_model.plan().model.sharding;
  for (const ShardLayout* layout : {&sharding.layout, &sharding.frozen, &sharding.quantized}) {
    if (index < layout->pieces().size()) return layout->table()[layout->pieces()[index].param].name;
    index -= layout->pieces().size();
  }
  return "";
}

// Returns, on all ranks, the first parameter in which rank `rank` differs from the first rank along
// data.
absl::StatusOr<std::string> name_parameter(ProcessGroups& groups, int rank,
                                           const std::vector<uint64_t>& mine,
                                           RankModel& rank_model) {
  ProcessGroup& data = groups.of({.axes = {MeshAxis::kData}});
  const auto all = Fingerprints::gather(data, mine);
  if (!all.ok()) return all.status();
  std::string name;
  if (groups.rank() == rank) {
    const auto first = all->first_difference(data.rank(), 0);
    if (first) name = piece_name(rank_model, *first);
  }
  return broadcast_text(groups.everyone(), name, rank, "difference");
}

}  // namespace

absl::Status check_same_config(ProcessGroups& groups, const TrainConfig& config) {
  ProcessGroup& everyone = groups.everyone();
  const nlohmann::json mine = to_json(config);
  const auto all = Fingerprints::gather(everyone, {fnv1a(mine.dump()), values_fingerprint(config)});
  if (!all.ok()) return all.status();
  for (int rank = 1; rank < everyone.size(); ++rank) {
    const auto first = all->first_difference(rank, 0);
    if (!first) continue;
    if (*first > 0) {
      return disagrees(rank, "makes other initial values than", 0, "",
                       "every rank needs the same build of muster-trainer");
    }
    const auto leaders = broadcast_text(everyone, mine.dump(), 0, "config");
    if (!leaders.ok()) return leaders.status();
    const auto difference =
        broadcast_text(everyone,
                       groups.rank() == rank
                           ? first_difference(nlohmann::json::parse(*leaders, nullptr, false), mine)
                           : "",
                       rank, "difference");
    if (!difference.ok()) return difference.status();
    return disagrees(rank, "has another config than", 0, absl::StrCat(": ", *difference),
                     "every rank needs the same file");
  }
  return absl::OkStatus();
}

absl::Status check_agreement(ProcessGroups& groups, uint64_t data_fingerprint,
                             RankModel& rank_model) {
  const std::vector<uint64_t> pieces = piece_fingerprints(rank_model);
  const uint64_t params =
      fnv1a({reinterpret_cast<const char*>(pieces.data()), pieces.size() * sizeof(uint64_t)});
  const auto all = Fingerprints::gather(groups.everyone(), {data_fingerprint, params});
  if (!all.ok()) return all.status();
  for (int rank = 1; rank < groups.mesh().ranks(); ++rank) {
    if (all->first_difference(rank, 0) == 0) {
      return disagrees(rank, "reads other data than", 0, "", "every node needs the same shards");
    }
    MeshCoordinate coordinate = groups.mesh().coordinate(rank);
    coordinate[static_cast<size_t>(MeshAxis::kData)] = 0;
    const int twin = groups.mesh().rank_at(coordinate);
    if (!all->first_difference(rank, twin)) continue;
    const auto name = name_parameter(groups, rank, pieces, rank_model);
    if (!name.ok()) return name.status();
    return disagrees(rank, "starts with other parameters than", twin, absl::StrCat(": ", *name),
                     "every rank needs the same build of muster-trainer");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RestoredAt>> restore_newest(ProcessGroup& data,
                                                         CheckpointPeers* readers,
                                                         const CheckpointStore& store,
                                                         const CheckpointJudge& judge,
                                                         RankModel& rank_model, std::ostream& log) {
  absl::StatusOr<std::optional<RestoredAt>> restored = std::nullopt;
  if (data.rank() == 0) restored = restore_from_disk(readers, store, judge, rank_model, log);
  return share_restored(data, restored, rank_model);
}

absl::StatusOr<std::optional<RestoredAt>> share_restored(
    ProcessGroup& data, const absl::StatusOr<std::optional<RestoredAt>>& restored,
    RankModel& rank_model) {
  if (data.size() == 1) return restored;
  std::array<float, kHeaderNumbers> header{};
  if (restored.ok() && restored->has_value()) {
    header[1] = 1;
    std::ranges::copy(floats_of_u64(static_cast<uint64_t>((*restored)->step)), header.begin() + 2);
    std::ranges::copy(floats_of_u64((*restored)->samples), header.begin() + 2 + kFloatsPerU64);
  } else {
    header[0] = static_cast<float>(restored.status().code());
  }
  if (auto status = data.broadcast(header, 0, "checkpoint step"); !status.ok())
    return restored.ok() ? status : restored.status();
  if (header[0] != 0) {
    if (!restored.ok()) return restored.status();
    return absl::Status(static_cast<absl::StatusCode>(static_cast<int>(header[0])),
                        "rank 0 could not restore the checkpoint; see its log");
  }
  if (header[1] == 0) return std::nullopt;
  const CheckpointBlocks state = rank_model.host_state();
  for (const auto& [block, name] :
       {std::pair(state.params, "checkpoint params"), std::pair(state.state, "checkpoint state")}) {
    if (block.empty()) continue;  // an optimizer without state
    if (auto status = data.broadcast(block, 0, name); !status.ok()) return status;
  }
  const auto fields = std::span<const float>(header).subspan(2);
  RestoredAt at{static_cast<int64_t>(u64_of_floats(fields)),
                u64_of_floats(fields.subspan(kFloatsPerU64))};
  if (restored.ok() && restored->has_value()) {
    at.evaluation = (*restored)->evaluation;
    at.spikes = (*restored)->spikes;
  }
  return at;
}

}  // namespace muster::trainer
