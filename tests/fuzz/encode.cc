// Any bytes as a text for each kind of tokenizer: the ids are in the vocabulary, and byte-level
// tokenizers decode them to the repaired text.
#include <memory>
#include <vector>

#include "tests/fuzz/target.h"
#include "tests/paths.h"
#include "trainer_core/data/tokenizer.h"
#include "trainer_core/data/utf8.h"

namespace {

using namespace muster::trainer;

std::unique_ptr<Tokenizer> load(const std::string& name, const std::string& encoding = "") {
  auto tokenizer = Tokenizer::load(muster::source_dir() + "/tests/" + name, encoding);
  MUSTER_CHECK(tokenizer.ok()) << tokenizer.status().message();
  return *std::move(tokenizer);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<Tokenizer> tokenizers[] = {
      load("golden/tokenizers/llama3.tiktoken", "llama3"), load("golden/tokenizers/gpt2.json"),
      load("fuzz/seeds/sentencepiece/bpe.model"), load("fuzz/seeds/sentencepiece/unigram.model")};
  const std::string text = repair_utf8(fuzz_input(data, size));
  for (const auto& tokenizer : tokenizers) {
    const auto ids = tokenizer->encode(fuzz_input(data, size));
    MUSTER_CHECK(ids.ok()) << ids.status().message();
    const auto decoded = tokenizer->decode(*ids);  // reads every id
    MUSTER_CHECK(decoded.ok()) << decoded.status().message();
    if (tokenizer->type() == "tiktoken") MUSTER_CHECK(*decoded == text) << tokenizer->type();
  }
  return 0;
}
