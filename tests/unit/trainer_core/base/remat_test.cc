#include "trainer_core/base/remat.h"

#include <gmock/gmock.h>

#include <string>

namespace muster::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Placement kRemat = Placement::kRemat, kDevice = Placement::kDevice,
                    kOffload = Placement::kOffload;

std::string error_of(const CustomRemat& custom) { return std::string(validate(custom).message()); }

TEST(Remat, PoliciesKeepWhatMaxTextNames) {
  // input, qkv, context, middle, gate_up, rest
  const auto expect = [](RematPolicy policy, const LayerPlacements& placements) {
    EXPECT_EQ(layer_placements(policy), placements)
        << kRematPolicyNames[static_cast<size_t>(policy)];
  };
  expect(RematPolicy::kNone, {kDevice, kDevice, kDevice, kDevice, kDevice, kDevice});
  expect(RematPolicy::kFull, {kDevice, kRemat, kRemat, kRemat, kRemat, kRemat});
  expect(RematPolicy::kMinimal, {kDevice, kDevice, kRemat, kDevice, kDevice, kRemat});
  expect(RematPolicy::kMinimalWithContext, {kDevice, kDevice, kDevice, kDevice, kDevice, kRemat});
  expect(RematPolicy::kSaveDotWithContextExceptMlp,
         {kDevice, kDevice, kDevice, kDevice, kRemat, kRemat});
  expect(RematPolicy::kSaveDotExceptMlpwi, {kDevice, kDevice, kRemat, kDevice, kRemat, kRemat});
  expect(RematPolicy::kSaveDotExceptMlp, {kDevice, kDevice, kRemat, kDevice, kRemat, kRemat});
  expect(RematPolicy::kSaveQkvProj, {kDevice, kDevice, kRemat, kRemat, kRemat, kRemat});
  expect(RematPolicy::kSaveOutProj, {kDevice, kRemat, kRemat, kDevice, kRemat, kRemat});
  expect(RematPolicy::kQkvProjOffloaded, {kDevice, kOffload, kRemat, kRemat, kRemat, kRemat});
  expect(RematPolicy::kMinimalOffloaded, {kDevice, kOffload, kRemat, kOffload, kOffload, kRemat});
  expect(RematPolicy::kCustom, {kDevice, kRemat, kRemat, kRemat, kRemat, kRemat});
}

TEST(Remat, CustomPlacesEachTensor) {
  const CustomRemat custom{.decoder_layer_input = kOffload,
                           .context = kDevice,
                           .mlpwi_0 = kOffload,
                           .mlpwi_1 = kOffload,
                           .mlpwo = kDevice,
                           .qkv_proj = kDevice,
                           .out_proj = kOffload};
  EXPECT_EQ(validate(custom), absl::OkStatus());
  EXPECT_EQ(layer_placements(RematPolicy::kCustom, custom),
            (LayerPlacements{kOffload, kDevice, kDevice, kOffload, kOffload, kRemat}));
  // The name of the whole and the names of its parts may both be given.
  const CustomRemat both{.mlpwi = kDevice,
                         .mlpwi_0 = kDevice,
                         .query_proj = kOffload,
                         .key_proj = kOffload,
                         .value_proj = kOffload};
  EXPECT_EQ(validate(both), absl::OkStatus());
  EXPECT_EQ(layer_placements(RematPolicy::kCustom, both),
            (LayerPlacements{kDevice, kOffload, kRemat, kRemat, kDevice, kRemat}));
}

TEST(Remat, PartsOfOneBufferAreKeptTogether) {
  EXPECT_THAT(error_of({.query_proj = kDevice}),
              AllOf(HasSubstr("query_proj=device"), HasSubstr("key_proj=remat")));
  EXPECT_THAT(error_of({.query_proj = kDevice, .key_proj = kDevice}),
              AllOf(HasSubstr("query_proj=device"), HasSubstr("value_proj=remat")));
  EXPECT_THAT(error_of({.value_proj = kOffload, .qkv_proj = kDevice}),
              AllOf(HasSubstr("qkv_proj=device"), HasSubstr("value_proj=offload")));
  EXPECT_THAT(error_of({.mlpwi_1 = kDevice}),
              AllOf(HasSubstr("mlpwi_0=remat"), HasSubstr("mlpwi_1=device")));
  EXPECT_THAT(error_of({.mlpwi = kOffload, .mlpwi_1 = kDevice}),
              AllOf(HasSubstr("mlpwi=offload"), HasSubstr("mlpwi_1=device")));
}

TEST(Remat, ALayerHasItsInput) {
  EXPECT_THAT(error_of({.decoder_layer_input = kRemat}), HasSubstr("decoder_layer_input=offload"));
}

}  // namespace
}  // namespace muster::trainer
