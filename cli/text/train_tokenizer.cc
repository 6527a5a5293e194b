// muster train-tokenizer, in muster-text: trains a SentencePiece model on a text.
#include "trainer_core/text/train_tokenizer.h"

#include <unistd.h>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

#include "cli/terminal/terminal.h"
#include "cli/text/text_commands.h"
#include "cli/text/text_progress.h"

namespace muster::cli {

int train_tokenizer(const TrainTokenizerArguments& arguments) {
  if (arguments.out.empty() || absl::EndsWith(arguments.out, "/")) {
    return fail(absl::InvalidArgumentError(absl::StrCat(
        "--out=", arguments.out, ": must be a file name: ", arguments.out, "tokenizer.model")));
  }
  trainer::TrainTokenizerOptions options;
  options.input = arguments.text;
  options.vocab_size = arguments.vocab_size;
  options.output = absl::EndsWith(arguments.out, ".model") ? arguments.out
                                                           : absl::StrCat(arguments.out, ".model");
  options.threads = arguments.threads;
  options.fewer_ok = arguments.fewer_ok;
  const Instant start = monotonic_now();
  Output output(STDERR_FILENO);
  ProgressBar bar(output, "train-tokenizer", start);
  TrainingProgress progress(start);
  const auto report =
      trainer::train_tokenizer(options, [&](const trainer::TrainTokenizerProgress& at) {
        const Instant now = monotonic_now();
        bar.update(progress.at(at, now), now);
      });
  bar.hide();
  if (!report.ok()) return fail(report.status());
  const double seconds = to_seconds(monotonic_now() - start);
  const nlohmann::json summary = {{"path", options.output},
                                  {"vocab_size", report->vocab_size},
                                  {"sentences", report->sentences},
                                  {"seconds", seconds}};
  return print_result(arguments.json
                          ? summary.dump(2) + "\n"
                          : absl::StrFormat("%s: %d pieces from %d sentences in %.1f s\n",
                                            options.output, report->vocab_size, report->sentences,
                                            seconds));
}

}  // namespace muster::cli
