#include "cli/text_commands.h"

#include "cli/help.h"

namespace muster::cli {
namespace {

void add_threads_option(CLI::App& command, int32_t& threads) {
  command.add_option("--threads", threads, "How many work at once; 0: as many as there are cores")
      ->type_name("N")
      ->check(whole_number(0, 1024))
      ->capture_default_str();
}

}  // namespace

CLI::App& describe_tokenize(CLI::App& app, TokenizeArguments& arguments) {
  CLI::App* command = app.add_subcommand(
      "tokenize", "Turn a text into token shards that training maps into memory");
  command->add_option("--text", arguments.text, "UTF-8 text")->required()->type_name("FILE");
  command->add_option("--tokenizer", arguments.tokenizer, "SentencePiece model")
      ->required()
      ->type_name("FILE.model");
  command
      ->add_option("--out", arguments.out, "Folder for the shards; earlier ones in it are replaced")
      ->required()
      ->type_name("DIR");
  command
      ->add_option("--documents", arguments.documents,
                   "What a document is: lines, or paragraphs between blank lines")
      ->type_name("lines|paragraphs")
      ->check(CLI::IsMember({"lines", "paragraphs"}).description(""))
      ->capture_default_str();
  command->add_flag("--no-eos", arguments.no_eos,
                    "Put no end-of-sequence token behind each document");
  add_threads_option(*command, arguments.threads);
  command
      ->add_option("--shard-tokens", arguments.shard_tokens,
                   "Tokens after which a new shard begins")
      ->type_name("N")
      ->check(whole_number(1, int64_t{1} << 40))
      ->capture_default_str();
  add_json_option(*command, arguments.json);
  command->footer(
      "Examples:\n"
      "  muster tokenize --text book.txt --tokenizer tokenizer.model --out shards\n"
      "  muster run configs/base.yml … dataset_type=shards dataset_path=shards "
      "tokenizer_path=tokenizer.model");
  return *command;
}

CLI::App& describe_train_tokenizer(CLI::App& app, TrainTokenizerArguments& arguments) {
  CLI::App* command = app.add_subcommand(
      "train-tokenizer", "Train a SentencePiece model (byte pairs with byte fallback, as Llama's)");
  command->add_option("--text", arguments.text, "UTF-8 text, one document per line")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--vocab-size", arguments.vocab_size,
                   "How many pieces it gets: vocab_size of the training config")
      ->type_name("N")
      ->check(whole_number(2, 1 << 24))
      ->capture_default_str();
  command->add_flag("--fewer-ok", arguments.fewer_ok,
                    "A text too small for --vocab-size gets as many pieces as it yields");
  command->add_option("--out", arguments.out, "Where the model goes; .model is added when missing")
      ->required()
      ->type_name("NAME[.model]");
  add_threads_option(*command, arguments.threads);
  add_json_option(*command, arguments.json);
  command->footer(
      "Examples:\n"
      "  muster train-tokenizer --text book.txt --vocab-size 4096 --out tokenizer\n"
      "  muster tokenize --text book.txt --tokenizer tokenizer.model --out shards");
  return *command;
}

}  // namespace muster::cli
