// The body of a request for completions: rejected with a JSON error, or a request within limits.
#include "serve/completion_request.h"

#include "tests/fuzz/target.h"
#include "trainer_core/base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::serve;
  for (const auto& parse : {parse_completion, parse_chat}) {
    const ParsedRequest parsed = parse(muster::trainer::fuzz_input(data, size));
    if (const auto* const error = std::get_if<ApiError>(&parsed)) {
      MUSTER_CHECK(!nlohmann::json::parse(error->body())["error"]["message"].empty());
      continue;
    }
    const auto& request = std::get<CompletionRequest>(parsed);
    MUSTER_CHECK(!request.prompts.empty() || !request.messages.empty());
    MUSTER_CHECK(request.choices >= 1 && request.sampling.temperature >= 0);
  }
  return 0;
}
