// The mesh of a training config: which of its axes this trainer runs, and what they make of a batch.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <absl/status/status.h>

#include "common/mesh.h"
#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// Axes along which this trainer splits a training: the degrees of others are 1.
constexpr AxisSet kSupportedAxes = {
    MeshAxis::kData,    MeshAxis::kPipeline, MeshAxis::kFsdp,   MeshAxis::kSequence,
    MeshAxis::kContext, MeshAxis::kExpert,   MeshAxis::kTensor,
};

// "this version has data, fsdp and tensor parallelism only", as a constant: tables of keys have it, too.
class AxesText {
 public:
  constexpr explicit AxesText(AxisSet axes) {
    size_t left = 0;
    for (size_t i = 0; i < kMeshAxisCount; ++i) left += axes.contains(static_cast<MeshAxis>(i));
    append("this version has ");
    for (size_t i = 0; i < kMeshAxisCount; ++i) {
      if (!axes.contains(static_cast<MeshAxis>(i))) continue;
      append(kMeshAxisNames[i]);
      --left;
      append(left == 0 ? " parallelism only" : left == 1 ? " and " : ", ");
    }
  }
  constexpr std::string_view view() const { return {text_.data(), size_}; }

 private:
  constexpr void append(std::string_view part) {
    for (const char c : part) text_[size_++] = c;
  }

  std::array<char, 128> text_{};  // room for all seven
  size_t size_ = 0;
};
inline constexpr AxesText kSupportedAxesText{kSupportedAxes};

// Degrees of at least 1, and only of kSupportedAxes. InvalidArgument names the key.
absl::Status validate_mesh(const MeshShape& shape);

// Whether the mesh can split what the model has, and the batch's rows. Requires a valid model and shape; InvalidArgument names the
// keys that disagree, and the degrees that would do.
absl::Status validate_on_mesh(const TrainConfig& config);

// Requires a valid shape.
Mesh mesh_of(const MeshShape& shape);

// Ranks with different slices of the global batch differ along these axes. Slices are in the order of coordinates.
constexpr AxisSet kBatchAxes = {MeshAxis::kData, MeshAxis::kFsdp, MeshAxis::kExpert};

struct BatchSlice {
  int32_t index = 0;
  int32_t count = 1;
};
BatchSlice batch_slice(const Mesh& mesh, int32_t rank);
// How many ranks compute a slice together.
int32_t ranks_of_slice(const Mesh& mesh);

}  // namespace muster::trainer
