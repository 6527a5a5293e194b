// muster-text: the text commands of `muster`, which executes this program for them.
#include <signal.h>

#include <exception>

#include "cli/terminal/terminal.h"
#include "cli/text/text_commands.h"
#include "common/process/start_limits.h"
#include "daemon/help.h"

int main(int argc, char** argv) {
  muster::name_limits_at_abort("muster");
  signal(SIGPIPE, SIG_IGN);  // write() to a closed pipe fails with EPIPE
  signal(SIGXFSZ, SIG_IGN);  // write() above the file size limit fails with EFBIG
  if (auto status = muster::check_start_needs("muster", {.open_files = 16}); !status.ok())
    return muster::cli::fail(status);
  CLI::App app("The text commands of muster", "muster");
  muster::daemon::use_our_help(app);
  app.require_subcommand(1);
  muster::cli::TokenizeArguments tokenize;
  muster::cli::TokenCacheArguments token_cache;
  muster::cli::TrainTokenizerArguments train;
  muster::cli::ConvertArguments convert;
  int exit_code = 0;
  muster::cli::describe_tokenize(app, tokenize).callback([&] {
    exit_code = muster::cli::tokenize(tokenize);
  });
  muster::cli::describe_token_cache(app, token_cache).callback([&] {
    exit_code = muster::cli::token_cache(token_cache);
  });
  muster::cli::describe_train_tokenizer(app, train).callback([&] {
    exit_code = muster::cli::train_tokenizer(train);
  });
  muster::cli::describe_convert(app, convert).callback([&] {
    exit_code = muster::cli::convert(convert);
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const std::exception& error) {
    return muster::cli::fail(absl::InternalError(error.what()));
  }
  return exit_code;
}
