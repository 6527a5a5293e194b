// A Parquet file: reading from any row returns the same rows as reading from the beginning.
#include "tests/fuzz/target.h"
#include "trainer_core/text/parquet_chunks.h"

namespace {

using namespace muster::trainer;

// A few bytes may stand for billions of equal rows.
constexpr size_t kRowsMax = 1 << 18;

struct Rows {
  std::vector<std::string> texts;
  bool whole = false;
};

Rows read(const InputFile& file, const std::string& field, uint64_t from) {
  Rows rows;
  const auto chunks = open_parquet_chunks(file, field, {0, 0, from});
  if (!chunks.ok()) return rows;
  while (rows.texts.size() < kRowsMax) {
    Chunk chunk;
    const auto more = (*chunks)->next(chunk);
    rows.whole = more.ok() && !*more;
    if (!more.ok() || !*more) break;
    for (const Record& record : chunk.records) {
      MUSTER_CHECK(record.number == from + rows.texts.size());
      rows.texts.emplace_back(chunk.text(record));
    }
  }
  return rows;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const FuzzFile bytes(fuzz_input(data, size));
  const InputFile file{bytes.path(), InputFormat::kParquet, size, 0};
  for (const std::string field : {"text", "doc.text"}) {
    const Rows all = read(file, field, 0);
    if (!all.whole || all.texts.empty()) continue;
    const size_t half = all.texts.size() / 2;
    const Rows rest = read(file, field, half);
    MUSTER_CHECK(rest.whole && rest.texts.size() == all.texts.size() - half);
    MUSTER_CHECK(std::equal(rest.texts.begin(), rest.texts.end(),
                            all.texts.begin() + static_cast<ptrdiff_t>(half)));
  }
  return 0;
}
