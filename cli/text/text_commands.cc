#include "cli/text/text_commands.h"

#include <absl/strings/str_join.h>

#include "daemon/help.h"

namespace muster::cli {
namespace {

void add_threads_option(CLI::App& command, int32_t& threads) {
  daemon::add_count(command, "--threads", threads, "Number of threads; 0: one per core", 0, 1024)
      ->capture_default_str();
}

// Adds an option that takes one of `choices`.
void add_choice(CLI::App& command, const std::string& name, std::string& value,
                const std::vector<std::string>& choices, const std::string& description) {
  command.add_option(name, value, description)
      ->type_name(absl::StrJoin(choices, "|"))
      ->check(CLI::IsMember(choices).description(""))
      ->capture_default_str();
}

}  // namespace

CLI::App& describe_tokenize(CLI::App& app, TokenizeArguments& arguments) {
  CLI::App* command = app.add_subcommand(
      "tokenize", "Convert texts into token shards that training maps into memory");
  command
      ->add_option("--text", arguments.text,
                   "Text (.txt), JSON lines (.jsonl, .json), TFRecord or Parquet, plain, .gz or "
                   ".zst, or a folder of them; may be repeated")
      ->required()
      ->type_name("PATH");
  command
      ->add_option("--tokenizer", arguments.tokenizer,
                   "A SentencePiece model, Hugging Face's tokenizer.json, a tiktoken file, or the "
                   "folder of one")
      ->required()
      ->type_name("FILE");
  add_choice(*command, "--encoding", arguments.encoding,
             {"cl100k_base", "o200k_base", "p50k_base", "r50k_base", "gpt2", "llama3", "qwen"},
             "The encoding of a tiktoken file that is not a published one, whose hash names it");
  command
      ->add_option("--out", arguments.out, "Folder for the shards; earlier ones in it are replaced")
      ->required()
      ->type_name("DIR");
  add_choice(*command, "--format", arguments.format, {"text", "jsonl", "tfrecord", "parquet"},
             "The format of every file, whatever its name");
  command
      ->add_option("--split", arguments.split,
                   "The part of a folder to read, by the names of its files: train, "
                   "validation, test, or another one of TFDS; all reads every file (default: "
                   "train, or the only one)")
      ->type_name("NAME");
  add_choice(
      *command, "--documents", arguments.documents, {"lines", "paragraphs", "files"},
      "The unit that is a document of plain text: a line, a paragraph between blank lines, a file");
  command
      ->add_option(
          "--field", arguments.field,
          "The text field of JSON lines, TFRecord examples and Parquet; a.b for the field b of a")
      ->type_name("NAME")
      ->capture_default_str();
  add_choice(*command, "--bad-documents", arguments.bad_documents, {"repair", "skip", "stop"},
             "Handling of a document that is not valid UTF-8 or JSON: repair inserts U+FFFD, and "
             "stops if that does not help");
  command->add_flag("--no-eos", arguments.no_eos,
                    "Do not append an end-of-sequence token to each document");
  CLI::Option* const sft = command->add_flag(
      "--sft", arguments.sft,
      "Samples for supervised fine-tuning: JSON lines with messages, prompt and completion, or "
      "text. Only completions count in the loss");
  command
      ->add_flag("--dpo", arguments.dpo,
                 "Pairs for preference tuning: JSON lines with prompt, chosen and rejected, texts "
                 "or messages")
      ->excludes(sft);
  command
      ->add_option("--chat-template", arguments.chat_template,
                   "With --sft and --dpo: the Jinja file that renders messages (default: "
                   "chat_template.jinja or "
                   "tokenizer_config.json beside the tokenizer)")
      ->type_name("FILE");
  command
      ->add_option("--chat-template-name", arguments.chat_template_name,
                   "The template to use if tokenizer_config.json has several")
      ->type_name("NAME");
  command->add_flag(
      "--bos", arguments.bos,
      "Begin samples of prompt and completion, or text, with the beginning-of-sequence "
      "token");
  add_threads_option(*command, arguments.threads);
  daemon::add_count(*command, "--shard-tokens", arguments.shard_tokens,
                    "Tokens after which a new shard begins", 1, int64_t{1} << 40)
      ->capture_default_str();
  command->add_flag("--restart", arguments.restart,
                    "Start from the beginning instead of resuming an interrupted run");
  add_json_option(*command, arguments.json);
  command->footer(
      "Examples:\n"
      "  muster tokenize --text book.txt --tokenizer tokenizer.model --out shards\n"
      "  muster tokenize --text c4/ --tokenizer Meta-Llama-3-8B/tokenizer.json --out shards\n"
      "  muster tokenize --text tensorflow_datasets/c4/en/3.0.1 --split validation --tokenizer "
      "tokenizer.model --out held-out\n"
      "  muster tokenize --text pile.jsonl.zst --text more.txt --tokenizer tokenizer.model --out "
      "shards\n"
      "  muster tokenize --sft --text chats.jsonl --tokenizer Meta-Llama-3-8B-Instruct --out sft\n"
      "  muster tokenize --dpo --text pairs.jsonl --tokenizer Meta-Llama-3-8B-Instruct --out dpo\n"
      "  muster run configs/base.yml … dataset_type=shards dataset_path=shards "
      "tokenizer_path=tokenizer.model\n"
      "A killed run resumes when the same command is given again.");
  return *command;
}

CLI::App& describe_token_cache(CLI::App& app, TokenCacheArguments& arguments) {
  CLI::App* command = app.add_subcommand("token-cache", "Find or make the token shards of a text");
  command->add_option("--text", arguments.text)->required();
  command->add_option("--dataset", arguments.dataset);
  command->add_flag("--dataset-stated", arguments.is_dataset_stated);
  command->add_option("--split", arguments.split);
  command->add_option("--field", arguments.field);
  command->add_option("--tokenizer", arguments.tokenizer)->required();
  command->add_option("--encoding", arguments.encoding);
  command->add_flag("--only-find", arguments.only_find);
  return *command;
}

CLI::App& describe_train_tokenizer(CLI::App& app, TrainTokenizerArguments& arguments) {
  CLI::App* command = app.add_subcommand(
      "train-tokenizer", "Train a SentencePiece model (byte pairs with byte fallback, as Llama's)");
  command->add_option("--text", arguments.text, "UTF-8 text, one document per line")
      ->required()
      ->type_name("FILE");
  daemon::add_count(*command, "--vocab-size", arguments.vocab_size,
                    "Number of pieces: vocab_size of the training config", 2, 1 << 24)
      ->capture_default_str();
  command->add_flag("--fewer-ok", arguments.fewer_ok,
                    "Accept fewer pieces if the text is too small for --vocab-size");
  command
      ->add_option("--out", arguments.out, "The model file to write; .model is appended if missing")
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

CLI::App& describe_convert(CLI::App& app, ConvertArguments& arguments) {
  CLI::App* command = app.add_subcommand(
      "convert", "Convert a model of Hugging Face or Meta into one of muster, or back");
  command
      ->add_option(
          "from", arguments.from,
          "A run's folder or one of its checkpoints, a Hugging Face folder (Llama, Mistral, "
          "Mixtral, Gemma, GPT-2), Meta's (params.json, consolidated.*.pth), or adapters (LoRA), "
          "which are merged into their base")
      ->required()
      ->type_name("FROM");
  command->add_option("to", arguments.to, "The folder to make; nothing is overwritten")
      ->required()
      ->type_name("TO");
  command
      ->add_option("--to", arguments.target,
                   "The format of TO: a Hugging Face folder, a run's folder with a checkpoint to "
                   "start from (default: the one that FROM is not), or for adapters a folder of "
                   "PEFT")
      ->type_name("hf|muster|peft")
      ->check(CLI::IsMember({"hf", "muster", "peft"}).description(""));
  command
      ->add_option("--base", arguments.base,
                   "The base of the adapters in FROM (default: the path that they name)")
      ->type_name("FOLDER");
  command
      ->add_option("--dtype", arguments.dtype,
                   "Data type in a Hugging Face folder (default: the one of FROM)")
      ->type_name("float32|bfloat16|float16")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}).description(""));
  command
      ->add_option(
          "--max-shard-size", arguments.shard_size,
          "Maximum size of a file in a Hugging Face folder; a larger tensor gets its own file")
      ->type_name("SIZE")
      ->capture_default_str();
  command
      ->add_option("--expect", arguments.expected,
                   "Value that the model of FROM must have, by the key of `muster config show`, "
                   "such as base_num_decoder_layers=32; may be repeated")
      ->type_name("KEY=VALUE");
  command
      ->add_option("--tokenizer", arguments.tokenizer,
                   "SentencePiece model to include (default: the tokenizer's files beside FROM, or "
                   "its run's tokenizer_path)")
      ->type_name("FILE.model");
  command->add_flag("--allow-unused", arguments.allow_unused,
                    "Leave out tensors that the model does not use, which are an error otherwise: "
                    "its config may describe another model");
  add_json_option(*command, arguments.json);
  command->footer(
      "Examples:\n"
      "  muster convert Llama-2-7b-hf llama2-7b                      # from Hugging Face\n"
      "  muster convert llama-2-7b llama2-7b --tokenizer tokenizer.model   # from Meta's files\n"
      "  muster run configs/base.yml model_name=llama2-7b run_name=tuned "
      "load_parameters_path=llama2-7b …\n"
      "  muster decode --run llama2-7b --prompt \"In the beginning\"\n"
      "  muster convert tuned tuned-hf --dtype bfloat16              # for transformers\n"
      "  muster convert adapted merged-hf                            # merges adapters\n"
      "  muster convert adapted adapter --to peft                    # adapters alone, for PEFT");
  return *command;
}

}  // namespace muster::cli
