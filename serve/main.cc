// muster-serve: serves a model over HTTP. `muster serve` executes this program.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/files/file_write.h"
#include "common/process/exit_code.h"
#include "common/process/standard_descriptors.h"
#include "common/process/usable_cpus.h"
#include "common/text/escape.h"
#include "daemon/command_line.h"
#include "daemon/help.h"
#include "daemon/process.h"
#include "daemon/trust_files.h"
#include "serve/api.h"
#include "serve/listener.h"
#include "serve/serve_options.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/find_checkpoint.h"
#include "trainer_core/recovery/failure.h"
#include "trainer_core/startup/choose_backend.h"
#include "trainer_core/startup/device_reserve.h"
#include "trainer_core/startup/load_tokenizer.h"

namespace muster::serve {
namespace {

// The time for running requests after SIGTERM.
constexpr std::chrono::seconds kDrainTime{30};
constexpr std::chrono::milliseconds kDrainPoll{50};
// The time for error responses after the engine has failed.
constexpr std::chrono::seconds kFailTime{2};

int fail(const absl::Status& status) {
  std::cerr << "muster: error: " << escape_controls(std::string(status.message())) << std::endl;
  return to_int(trainer::exit_code_for(status));
}

absl::StatusOr<std::set<daemon::TokenDigest>> read_keys(const std::string& path) {
  std::set<daemon::TokenDigest> keys;
  if (path.empty()) return keys;
  const auto tokens = daemon::read_tokens("--api-key-file", path);
  if (!tokens.ok()) return tokens.status();
  for (const std::string& token : *tokens) keys.insert(daemon::token_digest(token));
  if (keys.empty())
    return absl::InvalidArgumentError(absl::StrCat("--api-key-file=", path, ": there are no keys"));
  return keys;
}

// The model and what belongs to it.
struct LoadedRun {
  trainer::TrainConfig config;
  std::unique_ptr<trainer::Tokenizer> tokenizer;
  std::vector<ServedModel> models;
  ChatTemplate chat_template;
  std::unique_ptr<trainer::Engine> engine;
  std::string device;  // for the banner
};

absl::StatusOr<LoadedRun> load(const ServeArguments& arguments) {
  const auto folder = trainer::find_checkpoint(arguments.run);
  if (!folder.ok()) return folder.status();
  const auto info = trainer::verify_checkpoint(*folder, /*checksums=*/false);
  if (!info.ok()) return info.status();
  auto config = trainer::train_config_from_json(info->config);
  if (!config.ok()) return config.status();
  LoadedRun run{.config = *std::move(config),
                .tokenizer = {},
                .models = {},
                .chat_template = {},
                .engine = {},
                .device = {}};
  if (!arguments.tokenizer.empty()) {
    run.config.tokenizer_path = arguments.tokenizer;
    run.config.tokenizer_type.clear();  // the type is that of the training's tokenizer
  }
  if (run.config.tokenizer_path.empty())
    return absl::InvalidArgumentError(
        "the run has no tokenizer (its tokenizer_path is empty): give --tokenizer FILE, a "
        "SentencePiece model, a tokenizer.json or a tiktoken file");
  if (!arguments.dtype.empty())
    run.config.dtype = arguments.dtype == "bfloat16" ? trainer::ComputeType::kBfloat16
                                                     : trainer::ComputeType::kFloat32;
  auto tokenizer = trainer::load_tokenizer(run.config);
  if (!tokenizer.ok()) return tokenizer.status();
  run.tokenizer = *std::move(tokenizer);
  for (const std::string& note : run.tokenizer->notes())
    std::cerr << "muster: " << run.config.tokenizer_path << ": " << note << std::endl;
  const std::string name =
      arguments.model_name.empty() ? run.config.run_name : arguments.model_name;
  const auto folders = trainer::parse_adapters(arguments.adapters, name);
  if (!folders.ok()) return folders.status();
  const auto adapters = trainer::open_served_adapters(*folders, *folder, run.config.model);
  if (!adapters.ok()) return adapters.status();
  const auto starts = trainer::starts_of_models(run.config, *run.tokenizer, *adapters);
  if (!starts.ok()) return starts.status();
  run.models.push_back({name, starts->front()});
  for (size_t i = 0; i < adapters->size(); ++i)
    run.models.push_back({(*adapters)[i].name, (*starts)[i + 1]});
  auto chat_template =
      load_chat_template(arguments.chat_template, run.config.tokenizer_path, *run.tokenizer);
  if (!chat_template.ok()) return chat_template.status();
  run.chat_template = *std::move(chat_template);
  const trainer::DecoderSize size{
      .context = arguments.context > 0 ? arguments.context : run.config.max_target_length,
      .sequences_max = arguments.batch,
      .step_rows = std::max(arguments.step_tokens, arguments.batch),
      .cache_bytes = int64_t{arguments.cache_mib} << 20,
      .int8_cache = arguments.int8_cache,
      .threads = arguments.threads > 0 ? arguments.threads : static_cast<int32_t>(usable_cpus()),
      .tensor_ranks = arguments.tensor_parallel,
      .device_reserve_bytes = static_cast<int64_t>(trainer::kKernelCode.bytes)};
  auto chosen = trainer::backend_of_option(arguments.hardware, run.config, size.threads,
                                           arguments.tensor_parallel);
  if (!chosen.ok()) return chosen.status();
  if (!chosen->reason.empty()) std::cerr << "muster: " << chosen->reason << std::endl;
  run.device = chosen->backend ? chosen->backend->description() : "CPU";
  auto decoder = trainer::Decoder::load(run.config, *folder, size, *adapters, chosen->backend);
  if (absl::IsResourceExhausted(decoder.status())) {
    const bool is_wide = run.config.dtype == trainer::ComputeType::kFloat32;
    return absl::ResourceExhaustedError(absl::StrCat(
        decoder.status().message(), ". ", is_wide ? "Use --dtype bfloat16, " : "Use ",
        "--int8-cache, or a smaller --cache-mib, --batch, --step-tokens or --context"));
  }
  if (!decoder.ok()) return decoder.status();
  for (const std::string& note : (*decoder)->notes())
    std::cerr << "muster: " << escape_controls(note) << std::endl;
  run.engine = std::make_unique<trainer::Engine>(*std::move(decoder), run.tokenizer->vocab_size());
  return run;
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// Waits until no request runs, then stops the context.
void stop_when_idle(boost::asio::io_context& context, const Api& api, const Listener& listener,
                    boost::asio::steady_timer& timer, Instant deadline) {
  if ((api.is_idle() && listener.is_idle()) || monotonic_now() >= deadline) return context.stop();
  timer.expires_after(kDrainPoll);
  timer.async_wait([&, deadline](boost::system::error_code error) {
    if (!error) stop_when_idle(context, api, listener, timer, deadline);
  });
}

int serve(const ServeArguments& arguments) {
  if (auto status = check_arguments(arguments); !status.ok()) return fail(status);
  auto keys = read_keys(arguments.api_key_file);
  if (!keys.ok()) return fail(keys.status());
  auto run = load(arguments);
  if (!run.ok()) return fail(run.status());
  const auto seed = daemon::draw_random_id();
  if (!seed.ok()) return fail(seed.status());

  boost::asio::io_context context(1);
  const SessionLimits limits{.body_bytes = static_cast<size_t>(arguments.body_kib) << 10,
                             .header = milliseconds(arguments.header_seconds),
                             .write = milliseconds(arguments.write_seconds)};
  Metrics metrics;
  std::unique_ptr<Listener> listener;
  Api api(
      {.models = run->models,
       .api_keys = *std::move(keys),
       .outputs_max = static_cast<size_t>(arguments.batch) + static_cast<size_t>(arguments.waiting),
       .seed = *seed},
      *run->tokenizer, std::move(run->chat_template), metrics,
      [&listener] { return listener->connections(); });
  const Session::Handlers handlers{
      .handle = [&api](std::shared_ptr<Exchange> exchange) { api.handle(std::move(exchange)); },
      .admit = [&api](
                   const HttpRequest& request,
                   const std::string& authorization) { return api.admit(request, authorization); }};
  const size_t adapter_bytes = run->engine->adapter_bytes();
  boost::asio::steady_timer drained(context);
  absl::Status failure;
  const auto on_failure = [&](const absl::Status& status) {
    failure = status;
    std::cerr << "muster: error: " << escape_controls(std::string(status.message()))
              << "; the server ends" << std::endl;
    api.fail(std::string(status.message()));
    listener->drain();
    stop_when_idle(context, api, *listener, drained, monotonic_now() + kFailTime);
  };
  EngineThread engine(
      std::move(run->engine),
      {.deliver =
           [&](std::vector<CallEvent> events) {
             boost::asio::post(context,
                               [&api, events = std::move(events)] { api.deliver(events); });
           },
       .fail =
           [&](const absl::Status& status) {
             boost::asio::post(context, [&on_failure, status] { on_failure(status); });
           }});
  api.attach(engine);
  listener = std::make_unique<Listener>(context, handlers, limits,
                                        static_cast<size_t>(arguments.connections));
  if (auto status = listener->listen(arguments.listen); !status.ok()) return fail(status);

  bool ending = false;
  const auto signals = daemon::SignalListener::start(daemon::leave_signals(), [&](int) {
    boost::asio::post(context, [&] {
      if (std::exchange(ending, true)) return context.stop();  // the second signal
      if (!failure.ok()) return;                               // it ends within kFailTime
      api.drain();
      listener->drain();
      stop_when_idle(context, api, *listener, drained, monotonic_now() + kDrainTime);
    });
  });
  if (!arguments.port_file.empty()) {
    const auto status = write_file_atomically(
        arguments.port_file, absl::StrCat(listener->port(), "\n"), {.mode = daemon::kPortFileMode});
    if (!status.ok()) return fail(status);
  }
  std::cerr << "muster: serving " << escape_controls(run->models.front().name) << " on http://"
            << arguments.listen.substr(0, arguments.listen.rfind(':')) << ":" << listener->port()
            << "/v1 (" << run->device << ", context " << engine.context() << " tokens, "
            << engine.stats().blocks * trainer::CacheSize::kBlockPositions
            << " tokens in the cache";
  if (run->models.size() > 1) {
    std::cerr << "; " << trainer::adapter_count(run->models.size() - 1) << ", "
              << absl::StrFormat("%.1f", static_cast<double>(adapter_bytes) / (1 << 20)) << " MiB";
  }
  std::cerr << ")" << std::endl;
  context.run();
  listener.reset();  // ends the requests, while the API and the engine exist
  return failure.ok() ? 0 : to_int(trainer::exit_code_for(failure));
}

}  // namespace
}  // namespace muster::serve

int main(int argc, char** argv) {
  muster::hold_standard_descriptors();
  muster::daemon::raise_open_files_limit();  // a connection has two descriptors
  signal(SIGPIPE, SIG_IGN);  // the loss of a client is reported as an error of its connection
  CLI::App app("The server of muster", "muster");
  muster::daemon::use_our_help(app);
  app.require_subcommand(1);
  muster::serve::ServeArguments arguments;
  muster::serve::describe_serve(app, arguments);
  try {
    app.parse(argc, argv);
    return muster::serve::serve(arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : muster::to_int(muster::ExitCode::kBadInput);
  } catch (const std::exception& error) {
    return muster::serve::fail(absl::InternalError(error.what()));
  }
}
