// muster tokenize, in muster-text: text → token shards.
#include "trainer_core/data/tokenize.h"

#include <unistd.h>

#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

#include "cli/terminal.h"
#include "cli/text_commands.h"
#include "cli/text_progress.h"

namespace muster::cli {
namespace {

nlohmann::json summary_json(const TokenizeArguments& arguments, const trainer::TokenIndex& index,
                            double seconds) {
  return {{"path", arguments.out},
          {"documents", index.documents},
          {"tokens", index.tokens},
          {"bytes", index.bytes},
          {"shards", index.shards.size()},
          {"vocab_size", index.vocab_size},
          {"unigram_entropy_nats", index.unigram_entropy_nats},
          {"seconds", seconds}};
}

}  // namespace

int tokenize(const TokenizeArguments& arguments) {
  trainer::TokenizeOptions options;
  options.input = arguments.text;
  options.tokenizer_path = arguments.tokenizer;
  options.output_directory = arguments.out;
  options.documents = arguments.documents == "paragraphs"
                          ? trainer::TokenizeOptions::Documents::kParagraphs
                          : trainer::TokenizeOptions::Documents::kLines;
  options.add_eos = !arguments.no_eos;
  options.threads = arguments.threads;
  options.shard_tokens = arguments.shard_tokens;
  const Instant start = monotonic_now();
  Output output(STDERR_FILENO);
  ProgressBar bar(output, "tokenize", start);
  const auto index = trainer::tokenize_file(options, [&](uint64_t done, uint64_t total) {
    const Instant now = monotonic_now();
    bar.update(reading_progress(done, total, start, now), now);
  });
  bar.hide();
  if (!index.ok()) return fail(index.status());
  const double seconds = to_seconds(monotonic_now() - start);
  if (arguments.json) {
    write_text(STDOUT_FILENO, summary_json(arguments, *index, seconds).dump(2) + "\n");
    return 0;
  }
  write_text(STDOUT_FILENO,
             absl::StrFormat("%s: %d documents, %d tokens in %d %s, %.2f bytes/token, %s tokens/s\n"
                             "unigram entropy: %.3f nats per token (a model that only knows "
                             "frequencies has this loss)\n",
                             arguments.out, index->documents, index->tokens, index->shards.size(),
                             index->shards.size() == 1 ? "shard" : "shards",
                             static_cast<double>(index->bytes) / static_cast<double>(index->tokens),
                             format_count(static_cast<double>(index->tokens) / seconds),
                             index->unigram_entropy_nats));
  return 0;
}

}  // namespace muster::cli
