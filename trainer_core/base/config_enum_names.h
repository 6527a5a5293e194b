// The names of the enumerations of TrainConfig in its JSON object, which are MaxText's values.
#pragma once

#include <string_view>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// kNames has the name of each value of Enum, in the order of the values.
template <class Enum>
struct EnumNames;
template <>
struct EnumNames<NotFinitePolicy> {
  static constexpr const auto& kNames = kNotFinitePolicyNames;
};
template <>
struct EnumNames<DatasetType> {
  static constexpr std::string_view kNames[] = {"synthetic", "shards"};
};
template <>
struct EnumNames<LongSamples> {
  static constexpr const auto& kNames = kLongSamplesNames;
};
template <>
struct EnumNames<LossAverage> {
  static constexpr const auto& kNames = kLossAverageNames;
};
template <>
struct EnumNames<DpoLoss> {
  static constexpr const auto& kNames = kDpoLossNames;
};
template <>
struct EnumNames<RematPolicy> {
  static constexpr const auto& kNames = kRematPolicyNames;
};
template <>
struct EnumNames<ComputeType> {
  static constexpr const auto& kNames = kComputeTypeNames;
};
template <>
struct EnumNames<MatmulPrecision> {
  static constexpr const auto& kNames = kMatmulPrecisionNames;
};
template <>
struct EnumNames<Placement> {
  static constexpr const auto& kNames = kPlacementNames;
};
template <>
struct EnumNames<OptimizerType> {
  static constexpr const auto& kNames = kOptimizerNames;
};
template <>
struct EnumNames<ScheduleType> {
  static constexpr const auto& kNames = kScheduleNames;
};
template <>
struct EnumNames<DecayStyle> {
  static constexpr const auto& kNames = kDecayStyleNames;
};
template <>
struct EnumNames<Profiler> {
  static constexpr const auto& kNames = kProfilerNames;
};
template <>
struct EnumNames<NormType> {
  static constexpr std::string_view kNames[] = {"rms", "layer"};
};
template <>
struct EnumNames<PositionType> {
  static constexpr std::string_view kNames[] = {"rope", "rope_interleaved", "learned", "relative"};
};
template <>
struct EnumNames<Activation> {
  static constexpr const auto& kNames = kActivationNames;
};
template <>
struct EnumNames<RouterStyle> {
  static constexpr std::string_view kNames[] = {"maxtext", "pax"};
};
template <>
struct EnumNames<QuantizationType> {
  static constexpr const auto& kNames = kQuantizationNames;
};
template <>
struct EnumNames<WeightType> {
  static constexpr const auto& kNames = kWeightTypeNames;
};
template <>
struct EnumNames<Hardware> {
  static constexpr const auto& kNames = kHardwareNames;
};

}  // namespace muster::trainer
