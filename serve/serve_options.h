// The options of `muster serve`, which executes muster-serve with the same arguments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>

namespace muster::serve {

struct ServeArguments {
  std::string run;
  std::string listen = "127.0.0.1:8000";
  std::string tokenizer;              // empty: the run's
  std::string chat_template;          // file; empty: that of the tokenizer's folder
  std::string model_name;             // empty: the run's name
  std::vector<std::string> adapters;  // NAME=DIR
  std::string dtype;                  // "float32" or "bfloat16"; empty: the run's
  std::string api_key_file;
  bool trusted_network = false;
  std::string port_file;
  int32_t context = 0;  // 0: max_target_length of the run
  int32_t batch = 32;
  int32_t waiting = 256;
  int32_t step_tokens = 256;
  bool int8_cache = false;
  int32_t cache_mib = 0;  // 0: kCacheBytesDefault
  int32_t threads = 0;    // 0: all cores
  int32_t tensor_parallel = 1;
  std::string hardware = "cpu";
  int32_t connections = 512;
  int32_t body_kib = 2048;
  double header_seconds = 10;
  double write_seconds = 30;
};

// Declares the command. `arguments` must outlive the parsing.
CLI::App& describe_serve(CLI::App& app, ServeArguments& arguments);

// Checks what an option alone does not show: an address that other machines can reach needs keys or
// --trusted-network.
absl::Status check_arguments(const ServeArguments& arguments);

}  // namespace muster::serve
