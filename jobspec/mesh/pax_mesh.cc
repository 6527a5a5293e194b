#include "jobspec/mesh/pax_mesh.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/strip.h>

#include "common/text/absl_view.h"

namespace muster::jobspec {
namespace {

constexpr std::array kAxes = {MeshAxis::kData, MeshAxis::kFsdp, MeshAxis::kTensor};
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kLevels = {
    {{"ici", "--fdl.ICI_MESH_SHAPE"}, {"dcn", "--fdl.DCN_MESH_SHAPE"}}};

const Setting* degree_of(const Settings& settings, std::string_view level, MeshAxis axis) {
  return find_setting(settings, mesh_key(level, axis));
}

bool is_given(const Settings& settings, std::string_view level, std::string_view flag) {
  const Setting* degree = degree_of(settings, level, MeshAxis::kData);
  return degree != nullptr && degree->origin == flag;
}

std::string shape_text(const std::array<int32_t, kMeshAxisCount>& degrees) {
  std::vector<int32_t> of_axes;
  for (const MeshAxis axis : kAxes) of_axes.push_back(degrees[static_cast<size_t>(axis)]);
  return absl::StrCat("[", absl::StrJoin(of_axes, ","), "]");
}

}  // namespace

bool is_pax_mesh(const Settings& settings) {
  return std::ranges::any_of(
      kLevels, [&](const auto& level) { return is_given(settings, level.first, level.second); });
}

std::string pax_mesh_flags(const MeshShape& shape, bool states_nodes) {
  int64_t nodes = 1;
  for (size_t i = 0; i < kMeshAxisCount; ++i) {
    const bool is_named = std::ranges::find(kAxes, static_cast<MeshAxis>(i)) != kAxes.end();
    if (!is_named && (shape.ici[i] != 1 || shape.dcn[i] != 1)) return "";
    nodes *= std::max(shape.dcn[i], 1);
  }
  return absl::StrCat("--fdl.ICI_MESH_SHAPE=", shape_text(shape.ici),
                      nodes == 1 && !states_nodes
                          ? ""
                          : absl::StrCat(" --fdl.DCN_MESH_SHAPE=", shape_text(shape.dcn)));
}

std::string in_pax_words(const Settings& settings, const std::string& message) {
  std::string flags;
  std::string text = message;
  for (const auto& [level, flag] : kLevels) {
    if (!is_given(settings, level, flag)) continue;
    std::vector<std::string> degrees;
    for (const MeshAxis axis : kAxes) {
      const Setting* degree = degree_of(settings, level, axis);
      degrees.push_back(degree == nullptr ? "1" : degree->value.dump());
      const std::string key = mesh_key(level, axis);
      const absl::string_view name =
          absl::StripSuffix(absl::StripPrefix(key, "ici_"), "_parallelism");
      absl::StrReplaceAll({{absl::StrCat(key, " (", av(flag), ")"), name}, {key, name}}, &text);
    }
    absl::StrAppend(&flags, flags.empty() ? "" : " ", av(flag), "=[", absl::StrJoin(degrees, ","),
                    "]");
  }
  return absl::StrCat(flags, ", which are the degrees [data,fsdp,tensor]: ", text);
}

}  // namespace muster::jobspec
