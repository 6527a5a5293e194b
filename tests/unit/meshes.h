// Every way to divide ranks among the axes.
#pragma once

#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "common/job/mesh.h"

namespace muster {

using Degrees = std::array<int32_t, kMeshAxisCount>;

// Every way to write `size` as an ordered product of seven degrees.
inline std::vector<Degrees> factorisations(int32_t size) {
  std::vector<Degrees> result;
  Degrees degrees{};
  std::function<void(size_t, int32_t)> fill = [&](size_t axis, int32_t left) {
    if (axis + 1 == kMeshAxisCount) {
      degrees[axis] = left;
      result.push_back(degrees);
      return;
    }
    for (int32_t degree = 1; degree <= left; ++degree) {
      if (left % degree != 0) continue;
      degrees[axis] = degree;
      fill(axis + 1, left / degree);
    }
  };
  fill(0, size);
  return result;
}

// Returns a mesh of one node.
inline Mesh mesh_with(const Degrees& degrees) {
  int32_t ranks = 1;
  for (const int32_t degree : degrees) ranks *= degree;
  const auto mesh = Mesh::resolve({.ici = degrees}, 1, ranks);
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  return *mesh;
}

}  // namespace muster
