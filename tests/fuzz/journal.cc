// The journal of an interrupted tokenization: writing the parsed records reproduces them.
#include "trainer_core/text/journal.h"

#include "tests/fuzz/target.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::trainer;
  static const FuzzFolder folder;
  const std::string& path = folder.with(kJournalFile, fuzz_input(data, size));
  const auto content = Journal::read(path);
  if (!content.ok() || !content->has_value()) return 0;
  MUSTER_CHECK(check_same_run(**content, (*content)->run).ok());
  MUSTER_CHECK(Journal::begin(path, **content).ok());
  const auto again = Journal::read(path);
  MUSTER_CHECK(again.ok() && again->has_value());
  MUSTER_CHECK((*again)->shards.size() == (*content)->shards.size());
  MUSTER_CHECK((*again)->run.settings == (*content)->run.settings);
  return 0;
}
