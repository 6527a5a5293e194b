// A rank's progress page, which any user's program may write: rejected, or safe to use with all its
// indices and names.
#include "common/progress/progress_page.h"

#include "tests/fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  const trainer::FuzzFile file(trainer::fuzz_input(data, size));
  const auto page = read_progress_page(file.path());
  if (!page.ok()) {
    MUSTER_CHECK(page.status().message().find("proc") != std::string::npos) << "it names no file";
    return 0;
  }
  MUSTER_CHECK(size >= kProgressPageBytes && page->group_count <= kProgressGroupsMax);
  MUSTER_CHECK(!phase_name(page->phase).empty());
  for (const GroupProgress& group : page->groups)
    MUSTER_CHECK(std::strlen(group.name.data()) < group.name.size());
  for (const CollectiveRecord& record : page->ring)
    MUSTER_CHECK(std::strlen(record.name.data()) < record.name.size());
  return 0;
}
