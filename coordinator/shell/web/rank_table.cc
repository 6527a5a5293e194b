#include "coordinator/shell/web/rank_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "common/job/mesh.h"
#include "common/text/absl_view.h"
#include "coordinator/shell/web/web_reply.h"
#include "daemon/json/job_json.h"

namespace muster::coordinator {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the columns are little endian");

constexpr size_t kAlignment = 8;
constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();

// The numbers of `life` and `node_state`.
enum class NodeStateCode : uint8_t { kConnected, kAway, kExcluded, kLeaving };

// Columns that follow each other, each at a multiple of kAlignment. Offsets count from the first.
class Columns {
 public:
  template <class T>
  void add(const char* name, const char* type, const std::vector<T>& values) {
    bytes_.resize((bytes_.size() + kAlignment - 1) / kAlignment * kAlignment);
    list_.push_back(
        {{"name", name}, {"type", type}, {"offset", bytes_.size()}, {"count", values.size()}});
    const size_t at = bytes_.size();
    bytes_.resize(at + values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), values.size() * sizeof(T));
  }

  // Returns the header's length, the header and the columns. The offsets in the header count from
  // the start of the text, so that its length must be known: it is padded to a fixed one.
  std::string text(json header) const {
    constexpr size_t kHeaderBytes = 4096 - sizeof(uint32_t);
    const size_t start = kHeaderBytes + sizeof(uint32_t);
    json list = list_;
    for (json& column : list) column["offset"] = column["offset"].get<size_t>() + start;
    header["columns"] = std::move(list);
    std::string out(sizeof(uint32_t), '\0');
    const auto length = static_cast<uint32_t>(kHeaderBytes);
    std::memcpy(out.data(), &length, sizeof(length));
    out += json_text(header);
    out.resize(start, ' ');
    return out + bytes_;
  }

 private:
  json list_ = json::array();
  std::string bytes_;
};

// Ages differ in every response. Eighths of a second compress well.
float age_of(Instant then, Instant now) {
  if (then == Instant{}) return kUnknown;
  return static_cast<float>(std::round(8 * to_seconds(now - then)) / 8);
}

template <class T, class F>
std::vector<T> column_of(const std::vector<RankState>& ranks, const F& value_of) {
  std::vector<T> values;
  values.reserve(ranks.size());
  for (const RankState& rank : ranks) values.push_back(static_cast<T>(value_of(rank)));
  return values;
}

void add_ranks(const Core& core, const Job& job, Instant now, Columns& columns) {
  const auto add_u8 = [&](const char* name, const auto& value_of) {
    columns.add(name, "u8", column_of<uint8_t>(job.ranks, value_of));
  };
  const auto add_f32 = [&](const char* name, const auto& value_of) {
    columns.add(name, "f32", column_of<float>(job.ranks, value_of));
  };
  add_u8("life", [](const RankState& rank) { return rank.life; });
  add_u8("phase", [](const RankState& rank) {
    const auto phase = static_cast<uint32_t>(rank.phase);
    return phase < kPhaseNames.size() ? phase : 255U;
  });
  add_u8("process_state", [](const RankState& rank) { return rank.process_state; });
  columns.add("step", "i32", column_of<int32_t>(job.ranks, [](const RankState& rank) {
                return std::min<int64_t>(rank.step, INT32_MAX);
              }));
  add_f32("progress_age", [&](const RankState& rank) { return age_of(rank.last_progress, now); });
  add_f32("step_seconds", [](const RankState& rank) { return rank.step_seconds; });
  add_f32("loss", [](const RankState& rank) { return rank.loss; });
  add_f32("grad_norm", [](const RankState& rank) { return rank.grad_norm; });
  add_f32("tokens_per_second", [](const RankState& rank) { return rank.tokens_per_second; });
  add_f32("mfu", [](const RankState& rank) {
    return rank.device_peak_tflops > 0
               ? std::min(rank.tflops_per_device / rank.device_peak_tflops, 1.0)
               : kUnknown;
  });
  std::vector<float> scores(job.ranks.size(), 0);
  for (const auto& [rank, score] : core.straggler_scores(job, SIZE_MAX))
    if (static_cast<size_t>(rank.value()) < scores.size())
      scores[static_cast<size_t>(rank.value())] = static_cast<float>(score);
  columns.add("straggler", "f32", scores);
}

void add_nodes(const Core& core, const Job& job, Instant now, Columns& columns) {
  std::vector<float> ages;
  std::vector<uint8_t> states;
  const auto step = static_cast<size_t>(job.spec.ranks_per_node);
  for (size_t i = 0; i < job.placement.size(); i += step) {
    const WorkerName& name = job.placement[i].worker;
    const auto worker = core.workers().find(name);
    const auto node = core.nodes().find(name);
    const bool is_here = worker != core.workers().end();
    ages.push_back(is_here ? age_of(worker->second.last_heartbeat, now) : kUnknown);
    auto state = NodeStateCode::kConnected;
    if (!is_here || !worker->second.connected) {
      state = NodeStateCode::kAway;
    } else if (node != core.nodes().end() && node->second.excluded) {
      state = NodeStateCode::kExcluded;
    } else if (worker->second.leaving) {
      state = NodeStateCode::kLeaving;
    }
    states.push_back(static_cast<uint8_t>(state));
  }
  columns.add("node_heartbeat_age", "f32", ages);
  columns.add("node_state", "u8", states);
}

}  // namespace

std::string rank_table(const Core& core, const Job& job, Instant now, int64_t unix_ns) {
  Columns columns;
  add_ranks(core, job, now, columns);
  add_nodes(core, job, now, columns);
  return columns.text({{"job", job.id.value()},
                       {"attempt", job.attempt.value()},
                       {"state", std::string(job_state_name(job.state))},
                       {"unix_ns", unix_ns},
                       {"ranks", job.ranks.size()},
                       {"ranks_per_node", job.spec.ranks_per_node}});
}

RankMap rank_map(const Core& core, const Job& job) {
  RankMap map{.job = job.id.value(),
              .attempt = job.attempt.value(),
              .ranks = static_cast<int32_t>(std::ssize(job.placement)),
              .ranks_per_node = job.spec.ranks_per_node,
              .nodes = {},
              .switches = {},
              .train_config_json = job.spec.train_config_json};
  for (const SmallerJob& smaller : job.spec.smaller)
    if (smaller.nodes == nodes_now(job)) map.train_config_json = smaller.train_config_json;
  const auto step = static_cast<size_t>(job.spec.ranks_per_node);
  for (size_t i = 0; i < job.placement.size(); i += step) {
    const WorkerName& name = job.placement[i].worker;
    const auto worker = core.workers().find(name);
    map.nodes.push_back(name.value());
    map.switches.push_back(worker == core.workers().end() ? "" : worker->second.place.switches);
  }
  return map;
}

json rank_map_to_json(const RankMap& map) {
  json axes = json::array();
  const json config = daemon::config_to_json(map.train_config_json);
  MeshShape shape;
  const auto degree_of = [&](std::string_view level, size_t axis, int32_t& degree) {
    const auto found = config.find(mesh_key(level, static_cast<MeshAxis>(axis)));
    if (found == config.end() || !found->is_number_integer()) return false;
    degree = found->get<int32_t>();
    return true;
  };
  bool has_mesh = config.is_object();
  for (size_t axis = 0; has_mesh && axis < kMeshAxisCount; ++axis)
    has_mesh = degree_of("ici", axis, shape.ici[axis]) && degree_of("dcn", axis, shape.dcn[axis]);
  if (has_mesh && map.ranks > 0) {
    const auto mesh = Mesh::resolve(shape, map.ranks / map.ranks_per_node, map.ranks_per_node);
    for (size_t axis = 0; mesh.ok() && axis < kMeshAxisCount; ++axis) {
      axes.push_back({{"name", std::string(kMeshAxisNames[axis])},
                      {"size", mesh->degree(static_cast<MeshAxis>(axis))},
                      {"nodes", mesh->shape().dcn[axis]},
                      {"local", mesh->shape().ici[axis]}});
    }
  }
  json phases = json::array();
  for (const std::string_view name : kPhaseNames) phases.push_back(std::string(name));
  return {{"job", map.job},          {"attempt", map.attempt},
          {"ranks", map.ranks},      {"ranks_per_node", map.ranks_per_node},
          {"nodes", map.nodes},      {"switches", map.switches},
          {"axes", std::move(axes)}, {"phases", std::move(phases)}};
}

}  // namespace muster::coordinator
