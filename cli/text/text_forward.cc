// muster tokenize, train-tokenizer and convert: execute muster-text (text_commands.h has the
// reason).
#include <unistd.h>

#include <cerrno>

#include <absl/strings/str_cat.h>

#include "cli/terminal/child_process.h"
#include "cli/terminal/terminal.h"
#include "cli/text/text_commands.h"
#include "common/files/errno_status.h"

namespace muster::cli {
namespace {

int become_text_program(char** argv) {
  const auto program = sibling_program("muster-text");
  if (!program.ok()) return fail(program.status());
  execv(program->c_str(), argv);
  return fail(errno_status(errno, absl::StrCat("starting ", *program)));
}

}  // namespace

void declare_text_commands(CLI::App& app, Action& action, char** argv) {
  auto tokenize_arguments = std::make_shared<TokenizeArguments>();
  auto train_arguments = std::make_shared<TrainTokenizerArguments>();
  // The options are parsed here, too, so that errors are reported before anything starts.
  const auto forward = [&action, argv, tokenize_arguments, train_arguments] {
    action = [argv] { return become_text_program(argv); };
  };
  describe_train_tokenizer(app, *train_arguments).callback(forward);
  describe_tokenize(app, *tokenize_arguments).callback(forward);
}

void declare_convert(CLI::App& app, Action& action, char** argv) {
  auto arguments = std::make_shared<ConvertArguments>();
  describe_convert(app, *arguments).callback([&action, argv, arguments] {
    action = [argv] { return become_text_program(argv); };
  });
}

}  // namespace muster::cli
