#include "trainer_core/generation/engine.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/check.h"

namespace muster::trainer {

Engine::Engine(std::unique_ptr<Decoder> decoder, int32_t ids)
    : decoder_(std::move(decoder)),
      ids_(ids),
      pool_(decoder_->plan().cache.blocks),
      logits_(static_cast<size_t>(decoder_->plan().head_rows) *
              static_cast<size_t>(decoder_->plan().model.vocab_size)) {
  MUSTER_CHECK(ids >= 1 && ids <= decoder_->plan().model.vocab_size) << ids << " ids";
}

absl::Status Engine::check(std::span<const int32_t> prompt) const {
  if (prompt.empty()) return absl::InvalidArgumentError("the prompt has no tokens");
  if (prompt.size() > static_cast<size_t>(context())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the prompt has ", prompt.size(), " tokens; the context has room for ", context()));
  }
  for (const int32_t token : prompt) {
    if (token < 0 || token >= decoder_->plan().model.vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat("the prompt has the token id ", token,
                                                     "; ids are 0 to ",
                                                     decoder_->plan().model.vocab_size - 1));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RequestId> Engine::submit(GenerationRequest request) {
  if (auto status = check(request.prompt); !status.ok()) return status;
  MUSTER_CHECK(request.adapter >= -1 && request.adapter < std::ssize(decoder_->plan().served))
      << "adapter " << request.adapter;
  auto sequence = std::make_unique<Sequence>();
  sequence->id = next_id_++;
  sequence->tokens = request.prompt;
  sequence->request = std::move(request);
  const RequestId id = sequence->id;
  waiting_.push_back(std::move(sequence));
  return id;
}

void Engine::cancel(RequestId request) {
  const auto is_it = [&](const std::unique_ptr<Sequence>& one) { return one->id == request; };
  std::erase_if(waiting_, is_it);
  for (const std::unique_ptr<Sequence>& sequence : running_)
    sequence->finished = sequence->finished || is_it(sequence);
  remove_finished();
}

EngineStats Engine::stats() const {
  EngineStats stats = totals_;
  stats.running = static_cast<int32_t>(running_.size());
  stats.waiting = static_cast<int32_t>(waiting_.size());
  stats.blocks = pool_.size();
  stats.free_blocks = pool_.free();
  return stats;
}

size_t Engine::adapter_bytes() const {
  const TransformerPlan& plan = decoder_->plan();
  size_t bytes = 0;
  for (const ServedAdapter& adapter : plan.served) bytes += plan.memory.at(adapter.block).bytes;
  return bytes;
}

absl::StatusOr<std::vector<GenerationEvent>> Engine::step() {
  if (!failure_.ok()) return failure_;
  schedule();
  std::vector<GenerationEvent> events;
  const auto computed = compute();
  if (!computed.ok()) return fail(computed.status());
  const std::vector<LogitsRow>& rows = *computed;
  const auto at_once = static_cast<size_t>(decoder_->plan().head_rows);
  const auto vocab = static_cast<size_t>(decoder_->plan().model.vocab_size);
  for (size_t first = 0; first < rows.size(); first += at_once) {
    const size_t count = std::min(at_once, rows.size() - first);
    std::vector<int32_t> wanted;
    for (size_t i = 0; i < count; ++i) wanted.push_back(rows[first + i].row);
    if (auto status = decoder_->row_logits(wanted, logits_.data()); !status.ok())
      return fail(status);
    for (size_t i = 0; i < count; ++i) {
      const LogitsRow& row = rows[first + i];
      if (events.empty() || events.back().request != row.sequence->id) {
        events.emplace_back();
        events.back().request = row.sequence->id;
      }
      read_logits(row, std::span(logits_).subspan(i * vocab, vocab), events.back());
    }
  }
  remove_finished();
  return events;
}

// Returns the end of a rank, which is the cause of the error of an exchange, if it is known.
absl::Status Engine::fail(const absl::Status& error) {
  failure_ = decoder_->cause_of(error);
  return failure_;
}

// Each sequence with one token left gets its row; the prompts share the others.
void Engine::schedule() {
  int32_t free_rows = decoder_->plan().seq_len;
  for (const std::unique_ptr<Sequence>& sequence : running_) {
    sequence->rows = sequence->pending() == 1 ? 1 : 0;
    free_rows -= sequence->rows;
  }
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.rows == 0) {
      sequence.rows = std::min(sequence.pending(), free_rows);
      free_rows -= sequence.rows;
    }
    grow(i);  // may remove sequences from i on
  }
  admit(free_rows);
}

// Takes the block of the next token, if the sequence has none for it.
void Engine::grow(size_t index) {
  const int32_t needed = CacheSize::blocks_of(static_cast<int32_t>(running_[index]->tokens.size()));
  while (index < running_.size()) {
    std::vector<int32_t>& blocks = running_[index]->blocks;
    const auto missing = needed - static_cast<int32_t>(blocks.size());
    if (missing <= 0 || pool_.take(missing, blocks)) return;
    preempt_last();
  }
}

void Engine::preempt_last() {
  std::unique_ptr<Sequence> sequence = std::move(running_.back());
  running_.pop_back();
  pool_.give_back(sequence->blocks);
  sequence->cached = sequence->rows = 0;
  waiting_.push_front(std::move(sequence));
  ++totals_.preemptions;
}

void Engine::admit(int32_t rows) {
  const auto sequences_max = static_cast<size_t>(decoder_->plan().cache.sequences);
  while (!waiting_.empty() && running_.size() < sequences_max && rows > 0) {
    Sequence& next = *waiting_.front();
    if (!pool_.take(CacheSize::blocks_of(next.pending()), next.blocks)) return;
    next.rows = std::min(next.pending(), rows);
    rows -= next.rows;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

std::vector<Engine::Sequence*> Engine::scheduled() const {
  std::vector<Sequence*> order;
  for (const std::unique_ptr<Sequence>& sequence : running_)
    if (sequence->rows > 0) order.push_back(sequence.get());
  std::ranges::stable_sort(order, {}, [](const Sequence* one) { return one->request.adapter; });
  return order;
}

absl::StatusOr<std::vector<Engine::LogitsRow>> Engine::compute() {
  std::vector<LogitsRow> wanted;
  std::vector<int32_t> tokens, sequences, positions, blocks, adapters;
  const auto per_sequence = static_cast<size_t>(decoder_->plan().cache.blocks_per_sequence());
  for (Sequence* const one : scheduled()) {
    Sequence& sequence = *one;
    const auto number = static_cast<int32_t>(blocks.size() / per_sequence);
    for (int32_t i = 0; i < sequence.rows; ++i) {
      const int32_t position = sequence.cached + i;
      const bool is_last = position + 1 == static_cast<int32_t>(sequence.tokens.size());
      const bool in_prompt = sequence.request.prompt_logprobs &&
                             position + 1 >= sequence.reported &&
                             position + 1 < static_cast<int32_t>(sequence.request.prompt.size());
      if (is_last || in_prompt)
        wanted.push_back({static_cast<int32_t>(tokens.size()), &sequence, position});
      tokens.push_back(sequence.tokens[static_cast<size_t>(position)]);
      sequences.push_back(number);
      positions.push_back(position);
      adapters.push_back(sequence.request.adapter);
    }
    blocks.insert(blocks.end(), sequence.blocks.begin(), sequence.blocks.end());
    blocks.resize((static_cast<size_t>(number) + 1) * per_sequence, 0);
    if (sequence.rows > 1 || sequence.cached == 0)
      totals_.prompt_tokens += static_cast<uint64_t>(sequence.rows);
    sequence.cached += sequence.rows;
  }
  if (tokens.empty()) return wanted;
  ++totals_.steps;
  const auto status = decoder_->decode({tokens, sequences, positions, blocks, adapters});
  if (!status.ok()) return status;
  return wanted;
}

void Engine::read_logits(const LogitsRow& row, std::span<float> logits, GenerationEvent& event) {
  Sequence& sequence = *row.sequence;
  const auto next = static_cast<size_t>(row.position) + 1;
  if (next == sequence.tokens.size()) return choose_token(sequence, logits, event);
  event.prompt_logprobs.push_back(position_logprobs(
      logits, sequence.tokens[next], sequence.request.top_logprobs.value_or(0), ids_));
  sequence.reported = static_cast<int32_t>(next) + 1;
}

void Engine::choose_token(Sequence& sequence, std::span<float> logits, GenerationEvent& event) {
  const GenerationRequest& request = sequence.request;
  if (request.max_tokens == 0) {
    event.end = EndReason::kLength;
    sequence.finished = true;
    return;
  }
  std::vector<float> scratch(logits.begin(), logits.begin() + ids_);
  const int32_t token = sample_token(scratch, request.sampling, sequence.history());
  sequence.tokens.push_back(token);
  ++totals_.output_tokens;
  const auto output = static_cast<int32_t>(sequence.tokens.size() - request.prompt.size());
  if (request.top_logprobs)
    event.logprobs = position_logprobs(logits, token, *request.top_logprobs, ids_);
  if (std::ranges::find(request.stop_tokens, token) != request.stop_tokens.end()) {
    event.end = EndReason::kStop;
  } else {
    event.token = token;
    // The last token is not computed, so it needs no position of the context.
    if (output == request.max_tokens || static_cast<int32_t>(sequence.tokens.size()) > context())
      event.end = EndReason::kLength;
  }
  sequence.finished = event.end.has_value();
}

void Engine::remove_finished() {
  for (const std::unique_ptr<Sequence>& sequence : running_) {
    if (sequence->finished) pool_.give_back(sequence->blocks);
  }
  std::erase_if(running_, [](const auto& sequence) { return sequence->finished; });
}

}  // namespace muster::trainer
