#include "daemon/json/goodput_json.h"

namespace muster::daemon {
namespace {

using nlohmann::json;

double seconds_of_ns(int64_t ns) { return static_cast<double>(ns) / 1e9; }

}  // namespace

double goodput_ratio(const v1::Goodput& goodput) {
  if (goodput.wall_ns() <= 0) return 0;
  return static_cast<double>(goodput.productive_ns()) / static_cast<double>(goodput.wall_ns());
}

json goodput_to_json(const v1::Goodput& goodput) {
  json out = {{"ettr", goodput.wall_ns() > 0 ? json(goodput_ratio(goodput)) : json(nullptr)},
              {"wall_seconds", seconds_of_ns(goodput.wall_ns())},
              {"productive_seconds", seconds_of_ns(goodput.productive_ns())},
              {"queued_seconds", seconds_of_ns(goodput.queued_ns())},
              {"losses", json::array()}};
  for (const v1::Goodput::Loss& loss : goodput.losses()) {
    out["losses"].push_back(
        {{"cause", loss.cause()}, {"what", loss.what()}, {"seconds", seconds_of_ns(loss.ns())}});
  }
  return out;
}

}  // namespace muster::daemon
