// A chat template: rejected, or rendered within the limits to well-formed UTF-8 that contains the
// generated texts.
#include "tests/fuzz/target.h"
#include "trainer_core/base/check.h"
#include "trainer_core/chat/template.h"
#include "trainer_core/data/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using muster::trainer::chat::Template;
  static const auto variables = nlohmann::ordered_json::parse(
      R"({"messages": [{"role": "system", "content": "é s"}, {"role": "user", "content": " 世界 "},
          {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f",
           "arguments": {"a": [1, 2.5, true]}}}]}], "tools": [{"type": "function"}],
          "documents": null, "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})");
  const auto parsed = Template::parse(muster::trainer::fuzz_input(data, size));
  if (!parsed.ok()) return 0;
  muster::trainer::chat::RenderOptions options;
  options.work_max = 200'000;
  options.output_bytes_max = 50'000;
  const auto rendered = parsed->render(variables, options);
  if (!rendered.ok()) return 0;
  MUSTER_CHECK(rendered->text.size() <= options.output_bytes_max);
  MUSTER_CHECK(muster::trainer::scan_utf8(rendered->text).invalid_bytes == 0);
  for (const auto& span : rendered->generated)
    MUSTER_CHECK(span.begin <= span.end && span.end <= rendered->text.size());
  return 0;
}
