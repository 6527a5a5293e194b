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

TEST(PassedEnvironment, OtherUsersGetOnlyVariablesAboutTheNode) {
  for (const char* name : {"PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "NCCL_SOCKET_IFNAME",
                           "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"})
    EXPECT_TRUE(is_passed_to_users(name, {})) << name;
  for (const char* name : {"HOME", "SSH_AUTH_SOCK", "https_proxy", "DATABASE_URL", "HF_TOKEN",
                           "NVIDIA_API_KEY", "PATHS", "XDG_RUNTIME_DIR", ""})
    EXPECT_FALSE(is_passed_to_users(name, {})) << name;
  EXPECT_TRUE(is_passed_to_users("https_proxy", {"*_proxy", "https_*"}));
  EXPECT_TRUE(is_passed_to_users("NVIDIA_API_KEY", {"NVIDIA_*"}));
}

}  // namespace
}  // namespace muster::worker
