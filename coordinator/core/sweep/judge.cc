#include "coordinator/core/sweep/judge.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include <absl/strings/str_format.h>

namespace muster::coordinator {
namespace {

struct Tolerance {
  std::string_view name;
  double share;  // a value below this part of the median is slow
};

// Devices of one kind differ by a few percent; host memory, copies and storage also depend on what
// else uses them.
constexpr Tolerance kTolerances[] = {
    {"gemm", 0.7},           {"gemm_bf16", 0.8},        {"memory", 0.6},
    {"copy_to_device", 0.5}, {"copy_from_device", 0.5}, {"storage_write", 0.1},
    {"storage_read", 0.1}};
constexpr double kOtherTolerance = 0.3;

// A check does not record its folder.
bool is_storage(std::string_view name) { return name.starts_with("storage_"); }

double tolerance_of(std::string_view name) {
  for (const Tolerance& tolerance : kTolerances)
    if (tolerance.name == name) return tolerance.share;
  return kOtherTolerance;
}

double median_of_values(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(middle));
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle] +
          *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle))) /
         2;
}

References::Usual usual_of(std::vector<double> values) {
  References::Usual usual{median_of_values(values), 0, values.size()};
  for (double& value : values) value = std::abs(value - usual.median);
  constexpr double kNormal = 1.4826;
  usual.spread = kNormal * median_of_values(std::move(values));
  return usual;
}

std::vector<double> values_of(std::string_view name, std::span<const Measurements* const> lists) {
  std::vector<double> values;
  for (const Measurements* list : lists) {
    const auto found = std::ranges::find(*list, name, &Measurement::name);
    if (found != list->end()) values.push_back(found->value);
  }
  return values;
}

}  // namespace

void References::add(std::string_view kind, const Measurements& measurements) {
  for (const Measurement& one : measurements) add(kind, one);
}

void References::add(std::string_view kind, const Measurement& measurement) {
  values_[std::string(kind)][measurement.name].push_back(measurement.value);
}

void References::add_earlier(std::string_view kind, const Measurements& measurements) {
  for (const Measurement& one : measurements)
    if (!is_storage(one.name)) add(kind, one);
}

void References::finish() {
  for (auto& [kind, names] : values_)
    for (auto& [name, values] : names) usual_[kind][name] = usual_of(std::move(values));
}

const References::Usual* References::usual(std::string_view kind, std::string_view name) const {
  const auto names = usual_.find(kind);
  if (names == usual_.end()) return nullptr;
  const auto found = names->second.find(name);
  return found == names->second.end() ? nullptr : &found->second;
}

Judgement slow_measurement(std::string_view kind, const Measurements& own, const References& swept,
                           const References& known, std::span<const Measurements* const> earlier) {
  Judgement slowest;
  double least = 1;
  for (const Measurement& measured : own) {
    const References::Usual* of_kind = swept.usual(kind, measured.name);
    const bool excludes = of_kind != nullptr && of_kind->count > kReferenceMin;
    if (!excludes) of_kind = known.usual(kind, measured.name);
    const bool by_kind = of_kind != nullptr && of_kind->count >= kReferenceMin;
    References::Usual usual;
    if (by_kind) {
      usual = *of_kind;
    } else {
      std::vector<double> values = values_of(measured.name, earlier);
      if (values.size() < kReferenceMin || is_storage(measured.name)) continue;
      usual = usual_of(std::move(values));
    }
    const double ratio = usual.median > 0 ? measured.value / usual.median : 1;
    if (ratio >= tolerance_of(measured.name) ||
        measured.value > usual.median - kDeviationsMin * usual.spread)
      continue;
    // A reference that excludes the node counts more than any other.
    if (excludes < slowest.excludes || (excludes == slowest.excludes && ratio >= least)) continue;
    least = ratio;
    slowest = {absl::StrFormat("%s is %.3g %s; the median of %s%d %s is %.3g %s", measured.name,
                               measured.value, measured.unit, by_kind ? "the " : "", usual.count,
                               by_kind ? "nodes of its kind" : "earlier checks of the node",
                               usual.median, measured.unit),
               excludes};
  }
  return slowest;
}

void merge_best(Measurements& best, const Measurements& again) {
  for (const Measurement& measured : again) {
    const auto known = std::ranges::find(best, measured.name, &Measurement::name);
    if (known == best.end())
      best.push_back(measured);
    else
      known->value = std::max(known->value, measured.value);
  }
}

}  // namespace muster::coordinator
