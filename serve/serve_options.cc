#include "serve/serve_options.h"

#include "daemon/endpoint.h"
#include "daemon/help.h"
#include "trainer_core/base/mesh_rules.h"

namespace muster::serve {

CLI::App& describe_serve(CLI::App& app, ServeArguments& arguments) {
  CLI::App& command =
      *app.add_subcommand("serve", "Serve a trained model over HTTP, with the API of OpenAI");
  command
      .add_option("--run", arguments.run,
                  "A run's output folder, a folder made by muster convert, or an address of one")
      ->type_name("DIR")
      ->required();
  command.add_option("--listen", arguments.listen, "Address of the API (port 0 picks a free port)")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  command
      .add_option("--tokenizer", arguments.tokenizer,
                  "A SentencePiece model, tokenizer.json or tiktoken file (default: the run's "
                  "tokenizer_path)")
      ->type_name("FILE");
  command
      .add_option("--chat-template", arguments.chat_template,
                  "A chat template in Jinja (default: that of tokenizer_config.json beside the "
                  "tokenizer)")
      ->type_name("FILE");
  command
      .add_option("--model-name", arguments.model_name,
                  "The model's name in requests (default: the run's name)")
      ->type_name("NAME");
  command
      .add_option("--adapter", arguments.adapters,
                  "A LoRA adapter of the model: a folder of PEFT, or a run with enable_lora. The "
                  "field model of a request chooses it by NAME. May be repeated")
      ->type_name("NAME=DIR")
      ->allow_extra_args(false);
  command
      .add_option("--dtype", arguments.dtype,
                  "Type of matrices, activations and cache: float32 or bfloat16 (default: the "
                  "run's)")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  command
      .add_option("--api-key-file", arguments.api_key_file,
                  "A file with an API key per line, of which requests must have one")
      ->type_name("FILE");
  command.add_flag("--trusted-network", arguments.trusted_network,
                   "Allow --listen on an address that other machines can reach without keys");
  command
      .add_option("--port-file", arguments.port_file,
                  "Write the port to this file once the server is ready")
      ->type_name("FILE");
  daemon::add_count(command, "--context", arguments.context,
                    "Maximum tokens of a prompt and its output (default: the run's "
                    "max_target_length)",
                    1, 1 << 20);
  daemon::add_count(command, "--batch", arguments.batch,
                    "Maximum outputs that are computed at once", 1, 1024)
      ->capture_default_str();
  daemon::add_count(command, "--waiting", arguments.waiting,
                    "Maximum outputs that wait; further requests get status 429", 0, 1'000'000)
      ->capture_default_str();
  daemon::add_count(command, "--step-tokens", arguments.step_tokens,
                    "Maximum tokens of a step: longer prompts are computed in parts", 1, 1 << 16)
      ->capture_default_str();
  daemon::add_count(command, "--cache-mib", arguments.cache_mib,
                    "Memory for keys and values in MiB (default: 1024, or one context)", 1,
                    1 << 24);
  command.add_flag("--int8-cache", arguments.int8_cache,
                   "Store keys and values as int8, in a quarter of the memory of float32");
  daemon::add_count(command, "--threads", arguments.threads, "Threads (default: all cores)", 1,
                    1024);
  daemon::add_count(command, "--tensor-parallel", arguments.tensor_parallel,
                    "Divide the model, its cache and the threads among N processes", 1,
                    trainer::kTensorRanksMax)
      ->capture_default_str();
  command.add_option("--hardware", arguments.hardware, "cpu, gpu or auto")
      ->type_name("NAME")
      ->check(CLI::IsMember({"cpu", "gpu", "auto"}))
      ->capture_default_str();
  daemon::add_count(command, "--connections", arguments.connections, "Maximum connections", 1,
                    100'000)
      ->capture_default_str();
  daemon::add_count(command, "--body-kib", arguments.body_kib, "Maximum size of a request in KiB",
                    1, 1 << 20)
      ->capture_default_str();
  command
      .add_option("--header-seconds", arguments.header_seconds,
                  "Time limit for the header of a request")
      ->type_name("S")
      ->check(daemon::number(0.1, 3600))
      ->capture_default_str();
  command
      .add_option("--write-seconds", arguments.write_seconds,
                  "Time after which a client that does not read is disconnected")
      ->type_name("S")
      ->check(daemon::number(0.1, 3600))
      ->capture_default_str();
  command.footer(
      "Examples:\n"
      "  muster serve --run out/first\n"
      "  curl http://127.0.0.1:8000/v1/completions -d '{\"prompt\": \"In the beginning\", "
      "\"max_tokens\": 20}'\n"
      "  muster serve --run out/first --adapter german=out/german --adapter french=peft/french\n"
      "  muster serve --run out/first --listen 0.0.0.0:8000 --api-key-file keys.txt --batch 64");
  return command;
}

absl::Status check_arguments(const ServeArguments& arguments) {
  const auto endpoint = daemon::parse_endpoint("--listen", arguments.listen);
  if (!endpoint.ok()) return endpoint.status();
  return daemon::check_exposure("--listen", *endpoint,
                                arguments.trusted_network || !arguments.api_key_file.empty(),
                                "anyone could use the model; give --api-key-file FILE, or "
                                "--trusted-network if all of its machines may use it");
}

}  // namespace muster::serve
