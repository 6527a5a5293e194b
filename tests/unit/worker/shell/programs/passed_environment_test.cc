#include "worker/shell/programs/passed_environment.h"

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

TEST(PassedEnvironment, IdentifiesCredentialsByTheirNames) {
  for (const char* name :
       {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN",
        "WANDB_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "PGPASSWORD_PASSWORD", "db_password"})
    EXPECT_TRUE(is_credential(name)) << name;
  for (const char* name : {"PATH", "TOKENIZERS_PARALLELISM", "KEY", "NCCL_DEBUG", "AWS_REGION", "",
                           "LD_LIBRARY_PATH", "MONKEY_ISLAND"})
    EXPECT_FALSE(is_credential(name)) << name;
}

TEST(PassedEnvironment, PassesCredentialsThatAreNamed) {
  EXPECT_TRUE(is_passed("PATH", {}));
  EXPECT_FALSE(is_passed("HF_TOKEN", {}));
  EXPECT_TRUE(is_passed("HF_TOKEN", {"HF_TOKEN"}));
  EXPECT_TRUE(is_passed("HF_TOKEN", {"AWS_*", "HF_*"}));
  EXPECT_FALSE(is_passed("HF_TOKEN", {"AWS_*", "HF"}));
  EXPECT_TRUE(is_passed("HF_TOKEN", {"*"}));
}

}  // namespace
}  // namespace muster::worker
