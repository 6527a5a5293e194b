#include "jobspec/keys/remat_keys.h"

#include <gmock/gmock.h>

#include "jobspec/resolve.h"
#include "jobspec/resolve_step.h"
#include "tests/unit/jobspec/config_files.h"

namespace muster::jobspec {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using trainer::CustomRemat;
using trainer::Placement;
using trainer::RematPolicy;

class RematKeys : public ConfigFiles {};

TEST_F(RematKeys, EveryPolicyByItsName) {
  for (size_t i = 0; i < trainer::kRematPolicyNames.size(); ++i) {
    const auto job = resolve({"remat_policy=" + std::string(trainer::kRematPolicyNames[i])});
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->train.remat_policy, static_cast<RematPolicy>(i));
    EXPECT_EQ(job->train.custom_remat, CustomRemat());
  }
  EXPECT_EQ(resolve({})->train.remat_policy, RematPolicy::kFull);
}

TEST_F(RematKeys, AliasesOfPolicies) {
  const auto flash = resolve({"remat_policy=minimal_flash"});
  ASSERT_TRUE(flash.ok()) << flash.status();
  EXPECT_EQ(flash->train.remat_policy, RematPolicy::kMinimalWithContext);
  EXPECT_THAT(flash->warnings, IsEmpty());
  const auto plain = resolve({"remat_policy=minimal_with_quantization"});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_EQ(plain->train.remat_policy, RematPolicy::kMinimal);
  EXPECT_THAT(plain->warnings,
              ElementsAre(HasSubstr("runs as minimal: quantized tensors are rounded again")));
  EXPECT_EQ(resolve({"remat_policy=minimal_with_context_and_quantization"})->train.remat_policy,
            RematPolicy::kMinimalWithContext);
}

TEST_F(RematKeys, UnknownPolicies) {
  EXPECT_THAT(error_of(resolve({"remat_policy=minimall"})),
              AllOf(HasSubstr("minimall"), HasSubstr("did you mean minimal?")));
  EXPECT_THAT(error_of(resolve({"remat_policy=save_qkv_projs"})),
              HasSubstr("did you mean save_qkv_proj?"));
  EXPECT_THAT(error_of(resolve({"remat_policy="})), HasSubstr("none, minimal or full"));
}

TEST_F(RematKeys, CustomReadsItsPlacements) {
  const auto job = resolve({"remat_policy=custom", "context=device", "query_proj=device",
                            "key_proj=device", "value_proj=device", "mlpwi=device"});
  ASSERT_TRUE(job.ok()) << job.status();
  CustomRemat expected;
  expected.context = expected.query_proj = expected.key_proj = expected.value_proj =
      expected.mlpwi = Placement::kDevice;
  EXPECT_EQ(job->train.custom_remat, expected);
  EXPECT_THAT(job->warnings, IsEmpty());
}

TEST_F(RematKeys, PartsOfOneBufferInTwoPlaces) {
  EXPECT_THAT(error_of(resolve({"remat_policy=custom", "query_proj=device"})),
              AllOf(HasSubstr("query_proj=device"), HasSubstr("key_proj=remat")));
  EXPECT_THAT(error_of(resolve({"remat_policy=custom", "decoder_layer_input=remat"})),
              HasSubstr("decoder_layer_input=device"));
}

TEST_F(RematKeys, InvalidPlacements) {
  EXPECT_THAT(error_of(resolve({"context=host"})), AllOf(HasSubstr("context"), HasSubstr("host"),
                                                         HasSubstr("remat, device or offload")));
}

TEST_F(RematKeys, UnusedPlacements) {
  const auto job =
      resolve({"remat_policy=minimal", "context=device", "mlpwo=offload", "out_proj=remat"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->train.custom_remat, CustomRemat());
  EXPECT_THAT(job->warnings,
              ElementsAre("context=device, mlpwo=offload has no effect: remat_policy "
                          "is minimal, and only custom reads it"));
}

TEST_F(RematKeys, OffloadingOnCpuSavesNothing) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"remat_policy=minimal_offloaded"},
        {"remat_policy=custom", "out_proj=offload"}}) {
    const auto job = resolve(words);
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_THAT(job->warnings, ElementsAre(HasSubstr("saves no memory on CPU")));
  }
}

TEST_F(RematKeys, OfASingleStep) {
  std::vector<std::string> warnings;
  const auto step = resolve_step({"remat_policy=custom", "out_proj=device"}, warnings);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_EQ(step->layer_placements().middle, Placement::kDevice);
  EXPECT_EQ(resolve_step({}, warnings)->remat_policy, RematPolicy::kNone);
  EXPECT_TRUE(warnings.empty());
}

}  // namespace
}  // namespace muster::jobspec
