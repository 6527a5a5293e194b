// Generates text for many requests at once: continuous batching over a paged key/value cache
// (Kwon et al., "PagedAttention", 2023). Each step computes the next token of every running request
// and a chunk of the prompts of new ones, so requests enter and leave between steps, and a long
// prompt does not stop the others.
//
// A request whose prompt does not fit into the free blocks waits. If a running request needs a
// block and none is free, the request that was admitted last returns to the front of the queue; its
// tokens are computed again later. The request that was admitted first always continues.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/generation/block_pool.h"
#include "trainer_core/generation/decoder.h"
#include "trainer_core/generation/sampling.h"

namespace muster::trainer {

struct GenerationRequest {
  std::vector<int32_t> prompt;  // at least one token
  int32_t max_tokens = 16;      // maximum of the output; 0: only the prompt is evaluated
  SamplingOptions sampling{};
  std::vector<int32_t> stop_tokens{};  // end the output and are not part of it
  // Number of alternatives whose log-probabilities are reported for each position; nullopt: no
  // log-probabilities.
  std::optional<int32_t> top_logprobs{};
  bool prompt_logprobs = false;  // also for the prompt; requires top_logprobs
  int32_t adapter = -1;          // index among the decoder's adapters; -1: the base alone
};

using RequestId = uint64_t;

enum class EndReason : uint8_t {
  kStop,    // a stop token
  kLength,  // max_tokens, or the end of the context
};

// The results of one step for one request.
struct GenerationEvent {
  RequestId request = 0;
  // For the next prompt tokens; the first token of a prompt has none.
  std::vector<PositionLogprobs> prompt_logprobs;
  std::optional<int32_t> token;  // the next token of the output; none: it ended
  // Those of the token, or of the stop token that ended the output.
  std::optional<PositionLogprobs> logprobs;
  std::optional<EndReason> end;
};

struct EngineStats {
  int32_t running = 0;
  int32_t waiting = 0;
  int32_t blocks = 0;
  int32_t free_blocks = 0;
  uint64_t steps = 0;
  uint64_t prompt_tokens = 0;  // computed, with those of requests that were preempted
  uint64_t output_tokens = 0;
  uint64_t preemptions = 0;
};

// Not thread-safe, except check(), context(). The caller limits the number of unfinished requests.
class Engine {
 public:
  // `ids`: the number of ids of the tokenizer; the model's further ids are padding and are never
  // chosen.
  Engine(std::unique_ptr<Decoder> decoder, int32_t ids);

  // Returns InvalidArgument if a request with this prompt can never run, with the reason.
  // Thread-safe.
  absl::Status check(std::span<const int32_t> prompt) const;
  // Adds a request behind those that wait. Returns the error of check().
  absl::StatusOr<RequestId> submit(GenerationRequest request);
  // Removes a request, which has no further events. Ids of finished requests are ignored.
  void cancel(RequestId request);
  // Computes one step. Returns its results, with one event per request, or the error of a lost
  // rank of the decoder; so do all later steps.
  absl::StatusOr<std::vector<GenerationEvent>> step();
  bool is_idle() const { return running_.empty() && waiting_.empty(); }

  int32_t context() const { return decoder_->plan().cache.capacity; }
  const Decoder& decoder() const { return *decoder_; }
  // Returns the bytes of the adapters on this rank.
  size_t adapter_bytes() const;
  EngineStats stats() const;

 private:
  struct Sequence {
    RequestId id = 0;
    GenerationRequest request;
    std::vector<int32_t> tokens;  // prompt and output
    std::vector<int32_t> blocks;
    int32_t cached = 0;    // tokens whose keys and values are in the cache
    int32_t reported = 1;  // prompt tokens whose log-probabilities are reported
    int32_t rows = 0;      // rows of the current step
    bool finished = false;

    int32_t pending() const { return static_cast<int32_t>(tokens.size()) - cached; }
    TokenHistory history() const { return {tokens, request.prompt.size()}; }
  };
  // A row of the step whose logits are read.
  struct LogitsRow {
    int32_t row;
    Sequence* sequence;
    int32_t position;
  };

  // Chooses the rows of each sequence.
  void schedule();
  void grow(size_t index);
  void preempt_last();
  void admit(int32_t rows);
  // Returns the sequences that have rows in this step, ordered by their adapters: those of an
  // adapter are computed together.
  std::vector<Sequence*> scheduled() const;
  // Computes the rows and returns those whose logits are read.
  absl::StatusOr<std::vector<LogitsRow>> compute();
  absl::Status fail(const absl::Status& error);
  void read_logits(const LogitsRow& row, std::span<float> logits, GenerationEvent& event);
  void choose_token(Sequence& sequence, std::span<float> logits, GenerationEvent& event);
  void remove_finished();

  std::unique_ptr<Decoder> decoder_;
  int32_t ids_;
  BlockPool pool_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in the order of admission
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<float> logits_;  // (head_rows, V)
  RequestId next_id_ = 1;
  EngineStats totals_;
  absl::Status failure_;
};

}  // namespace muster::trainer
