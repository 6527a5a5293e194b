#include "jobspec/dialects/mesh_selector.h"

#include <absl/strings/str_cat.h>

#include "tests/unit/jobspec/pasted_lines.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::jobspec {
namespace {

class MeshSelector : public PastedLines {};

// fuji.py's mesh_rules, with data=-1 and fsdp=N as levels.
TEST_F(MeshSelector, SelectsByTheRulesOfAxlearn) {
  struct Rule {
    const char* model;
    const char* selector;
    int32_t nodes, data, fsdp;
  };
  for (const Rule& rule : {Rule{"fuji-7B-v2-flash", "gpu-p5.48xlarge-256", 32, 32, 8},
                           Rule{"fuji-8B-v3-tiktoken", "gpu-a3-highgpu-8g-1024", 128, 128, 8},
                           Rule{"fuji-70B-v2", "gpu-p5.48xlarge-512", 64, 4, 128},
                           // Without a rule the model's own mesh applies: data=-1 with fsdp=8, and
                           // fsdp=-1.
                           Rule{"fuji-7B-v2", "gpu-p5.48xlarge-64", 8, 8, 8},
                           Rule{"fuji-70B-v2", "gpu-p5.48xlarge-256", 32, 1, 256}}) {
    const auto job = pasted(absl::StrCat("--config=", rule.model,
                                         " --mesh_selector=", rule.selector, " --data_dir=FAKE"),
                            8, rule.nodes);
    ASSERT_TRUE(job.ok()) << job.status();
    const Mesh mesh = trainer::mesh_of(job->train.mesh);
    EXPECT_EQ(mesh.degree(MeshAxis::kData), rule.data) << rule.model << " " << rule.selector;
    EXPECT_EQ(mesh.degree(MeshAxis::kFsdp), rule.fsdp) << rule.model << " " << rule.selector;
  }
}

}  // namespace
}  // namespace muster::jobspec
