// A line with a sample for fine-tuning: rejected, or a text with ascending spans within it.
#include "trainer_core/text/sft_sample.h"

#include "tests/fuzz/target.h"
#include "trainer_core/base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto format = [] {
    muster::trainer::SftFormat made;
    auto chat = muster::trainer::chat::ChatTemplate::load(
        {"/nonexistent/t.json", muster::source_dir() + "/tests/golden/chat/zephyr.jinja", ""});
    MUSTER_CHECK(chat.ok()) << chat.status().ToString();
    made.chat.emplace(*std::move(chat));
    return made;
  }();
  const auto text = muster::trainer::sft_text(muster::trainer::fuzz_input(data, size), format);
  if (!text.ok()) return 0;
  size_t before = 0;
  for (const muster::trainer::WeightedSpan& span : text->spans) {
    MUSTER_CHECK(before <= span.begin && span.begin <= span.end && span.end <= text->text.size());
    MUSTER_CHECK(span.weight >= 0);
    before = span.end;
  }
  return 0;
}
