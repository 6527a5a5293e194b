#include "jobspec/mesh/pax_mesh.h"

#include <gmock/gmock.h>

#include <absl/strings/str_cat.h>

#include "tests/unit/jobspec/pasted_lines.h"

namespace muster::jobspec {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PaxMesh : public PastedLines {};

TEST_F(PaxMesh, ErrorsAreInPaxWords) {
  const std::string config = "--fdl_config=configs.GPT126M ";
  EXPECT_THAT(error_of(pasted(config + "--fdl.ICI_MESH_SHAPE=[2,2,1]", 8)),
              AllOf(HasSubstr("--fdl.ICI_MESH_SHAPE=[2,2,1], which are the degrees"),
                    HasSubstr("data=2 fsdp=2: the degrees multiply to 4"),
                    HasSubstr("with --fdl.ICI_MESH_SHAPE=[4,2,1]"),
                    ::testing::Not(HasSubstr("_parallelism"))));
  EXPECT_THAT(error_of(pasted(config + "--fdl.ICI_MESH_SHAPE=[1,1,5]", 5)),
              HasSubstr("--fdl.ICI_MESH_SHAPE=[5,1,1]"));
  EXPECT_THAT(error_of(pasted(config + "ici_data_parallelism=2 ici_fsdp_parallelism=2", 8)),
              HasSubstr("ici_data_parallelism=4 ici_fsdp_parallelism=2"));
}

// Flags of a suggestion replace those of the line, which it may leave at 1.
TEST_F(PaxMesh, SuggestionsReplaceTheDegreesOfTheLine) {
  const std::string line = "CONFIG=Synthetic126M --fdl.DCN_MESH_SHAPE=[1,16,1]";
  EXPECT_THAT(error_of(pasted(line, 8, 1)),
              HasSubstr("with --fdl.ICI_MESH_SHAPE=[8,1,1] --fdl.DCN_MESH_SHAPE=[1,1,1]"));
  EXPECT_TRUE(pasted("CONFIG=Synthetic126M --fdl.ICI_MESH_SHAPE=[8,1,1] "
                     "--fdl.DCN_MESH_SHAPE=[1,1,1]",
                     8)
                  .ok());
}

TEST_F(PaxMesh, DegreesAreWholeNumbers) {
  const std::string base = "--fdl_config=configs.GPT126M ";
  for (const char* degree : {"2.5", "x", "True"}) {
    EXPECT_EQ(error_of(pasted(absl::StrCat(base, "--fdl.DCN_MESH_SHAPE=[1,", degree, ",1]"))),
              absl::StrCat("--fdl.DCN_MESH_SHAPE=[1,", degree,
                           ",1]: its degrees are [data,fsdp,tensor], and fsdp is ", degree,
                           "; each is a whole number, or -1 to fill in what is left"));
  }
}

TEST_F(PaxMesh, OtherAxesHaveNoFlag) {
  MeshShape shape;
  shape.ici[static_cast<size_t>(MeshAxis::kFsdp)] = 8;
  EXPECT_EQ(pax_mesh_flags(shape), "--fdl.ICI_MESH_SHAPE=[1,8,1]");
  shape.dcn[static_cast<size_t>(MeshAxis::kData)] = 2;
  EXPECT_EQ(pax_mesh_flags(shape), "--fdl.ICI_MESH_SHAPE=[1,8,1] --fdl.DCN_MESH_SHAPE=[2,1,1]");
  shape.ici[static_cast<size_t>(MeshAxis::kPipeline)] = 2;
  EXPECT_EQ(pax_mesh_flags(shape), "");
}

}  // namespace
}  // namespace muster::jobspec
