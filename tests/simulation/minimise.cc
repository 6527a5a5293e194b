#include "tests/simulation/minimise.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <set>

#include <absl/strings/str_cat.h>

namespace muster::simulation {
namespace {

// A run takes some 30 ms.
constexpr int kRunsMax = 150;

// Returns the bound of runs: MUSTER_SIMULATION_RUNS, or kRunsMax.
int runs_max() {
  const char* text = std::getenv("MUSTER_SIMULATION_RUNS");
  return text == nullptr ? kRunsMax : std::atoi(text);
}

// Returns the violation without its numbers and names, by which two failures are compared.
std::string kind_of(const std::string& problem) {
  std::string kind;
  for (const char c : problem.substr(0, problem.find('\n')))
    if (isdigit(static_cast<unsigned char>(c)) == 0) kind += c;
  constexpr size_t kBytes = 40;
  return kind.substr(0, kBytes);
}

}  // namespace

std::string failure_of_seed(uint64_t seed, int workers, Faults faults) {
  World whole(seed, workers, nullptr, false, faults);
  if (whole.run().empty()) return "";
  const std::string kind = kind_of(whole.problem());
  std::set<int> kept;
  for (int event = 0; event < whole.disturbances(); ++event) kept.insert(event);
  int runs = 0;
  const int limit = runs_max();
  // Removes halves, then quarters and so on (delta debugging).
  for (size_t size = (kept.size() + 1) / 2; size > 0 && runs < limit; size /= 2) {
    for (size_t at = 0; at < kept.size() && runs < limit;) {
      auto first = std::next(kept.begin(), static_cast<ptrdiff_t>(at));
      const size_t count = std::min(size, kept.size() - at);
      std::set<int> fewer(kept.begin(), first);
      fewer.insert(std::next(first, static_cast<ptrdiff_t>(count)), kept.end());
      ++runs;
      World world(seed, workers, &fewer, false, faults);
      if (!world.run().empty() && kind_of(world.problem()) == kind) {
        kept = std::move(fewer);
      } else {
        at += size;
      }
    }
  }
  const std::string text = World(seed, workers, &kept, true, faults).run();
  return absl::StrCat(text, "minimised from ", whole.disturbances(), " submissions and faults to ",
                      kept.size(), " in ", runs, " runs\n");
}

}  // namespace muster::simulation
