#include "trainer_core/data/corpus.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/random/philox.h"

namespace muster::trainer {
namespace {

// The Philox stream for the positions of held-out documents.
constexpr uint64_t kSplitStream = uint64_t{3} << 48;

uint64_t draw(const Philox& philox, uint64_t index) {
  const Philox::Block words = philox(index);
  return uint64_t{words[1]} << 32 | words[0];
}

size_t run_of(const std::vector<uint64_t>& firsts, uint64_t number) {
  return static_cast<size_t>(std::upper_bound(firsts.begin(), firsts.end(), number) -
                             firsts.begin()) -
         1;
}

// Returns the first document that begins at or after `token`.
absl::StatusOr<uint64_t> document_from(const TokenDataset& dataset, uint64_t token) {
  if (token >= dataset.tokens()) return dataset.documents();
  const auto number = dataset.document_at(token);
  if (!number.ok()) return number.status();
  const auto range = dataset.document(*number);
  if (!range.ok()) return range.status();
  return range->begin == token ? *number : *number + 1;
}

// Returns the error for document ends that decrease. The open of a data set checks only headers, so
// the ends are checked when they are read.
absl::Status out_of_order(const TokenDataset& dataset, uint64_t document) {
  return absl::DataLossError(absl::StrCat(dataset.folder(), ": document ", document,
                                          " lies before documents in front of it; tokenize again"));
}

// Appends documents [first, last) if there are any.
absl::Status add_run(const TokenDataset& dataset, uint64_t first, uint64_t last,
                     std::vector<DocumentRun>& runs) {
  if (first == last) return absl::OkStatus();
  const auto begin = dataset.document(first);
  if (!begin.ok()) return begin.status();
  const auto end = dataset.document(last - 1);
  if (!end.ok()) return end.status();
  if (end->end < begin->begin) return out_of_order(dataset, last - 1);
  runs.push_back({first, last - first, begin->begin, end->end - begin->begin});
  return absl::OkStatus();
}

}  // namespace

Corpus::Corpus(std::shared_ptr<const TokenDataset> dataset) : dataset_(std::move(dataset)) {
  if (dataset_->documents() > 0) runs_.push_back({0, dataset_->documents(), 0, dataset_->tokens()});
  add_up();
}

Corpus::Corpus(std::shared_ptr<const TokenDataset> dataset, std::vector<DocumentRun> runs)
    : dataset_(std::move(dataset)), runs_(std::move(runs)) {
  add_up();
}

void Corpus::add_up() {
  uint64_t token = 0, document = 0;
  for (const DocumentRun& run : runs_) {
    first_tokens_.push_back(token);
    first_documents_.push_back(document);
    token += run.tokens;
    document += run.documents;
  }
  first_tokens_.push_back(token);
  first_documents_.push_back(document);
}

// Calls read(position in the data set, part) for the part of `out` in each run.
template <class T, class Read>
absl::Status Corpus::read_parts(uint64_t position, std::span<T> out, const Read& read) const {
  for (size_t run = run_of(first_tokens_, position); !out.empty(); ++run) {
    const uint64_t inside = position - first_tokens_[run];
    const uint64_t count = std::min<uint64_t>(out.size(), runs_[run].tokens - inside);
    const absl::Status status = read(runs_[run].first_token + inside, out.first(count));
    if (!status.ok()) return status;
    out = out.subspan(count);
    position += count;
  }
  return absl::OkStatus();
}

absl::Status Corpus::read(uint64_t position, std::span<int32_t> out) const {
  return read_parts(position, out,
                    [&](uint64_t at, auto part) { return dataset_->read(at, part); });
}

absl::Status Corpus::read_weights(uint64_t position, std::span<float> out) const {
  return read_parts(position, out,
                    [&](uint64_t at, auto part) { return dataset_->read_weights(at, part); });
}

absl::Status Corpus::document_ends(uint64_t position, uint64_t length,
                                   std::vector<uint64_t>& ends) const {
  ends.clear();
  const uint64_t last = position + length;
  size_t run = run_of(first_tokens_, position);
  const auto first = dataset_->document_at(runs_[run].first_token + position - first_tokens_[run]);
  if (!first.ok()) return first.status();
  for (uint64_t document = *first; position < last;) {
    const auto range = dataset_->document(document);
    if (!range.ok()) return range.status();
    const uint64_t end = first_tokens_[run] + range->end - runs_[run].first_token;
    if (end < position || end > first_tokens_[run + 1]) return out_of_order(*dataset_, document);
    position = end;
    if (position <= last) ends.push_back(length - (last - position));
    ++document;
    if (document < runs_[run].first_document + runs_[run].documents) continue;
    if (++run == runs_.size()) break;
    document = runs_[run].first_document;
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenDataset::TokenRange> Corpus::document(uint64_t number) const {
  const size_t run = run_of(first_documents_, number);
  const DocumentRun& part = runs_[run];
  const uint64_t document = part.first_document + number - first_documents_[run];
  const auto range = dataset_->document(document);
  if (!range.ok()) return range.status();
  if (range->begin < part.first_token || range->end > part.first_token + part.tokens)
    return out_of_order(*dataset_, document);
  const uint64_t begin = range->begin - part.first_token + first_tokens_[run];
  return TokenDataset::TokenRange{begin, begin + range->end - range->begin};
}

absl::StatusOr<CorpusSplit> split_corpus(const std::shared_ptr<const TokenDataset>& dataset,
                                         double fraction, uint64_t seed) {
  std::vector<DocumentRun> train, eval;
  const Philox philox{.key = seed, .stream = kSplitStream};
  const uint64_t tokens = dataset->tokens();
  uint64_t next = 0;  // first document that is not assigned to a part yet
  for (uint64_t stretch = 0; stretch < kSplitStretches && fraction > 0; ++stretch) {
    const uint64_t begin = tokens / kSplitStretches * stretch;
    const uint64_t length =
        (stretch + 1 < kSplitStretches ? begin + tokens / kSplitStretches : tokens) - begin;
    const auto held = static_cast<uint64_t>(std::ceil(fraction * static_cast<double>(length)));
    const uint64_t from = begin + draw(philox, stretch) % (length - held + 1);
    const auto first = document_from(*dataset, from);
    if (!first.ok()) return first.status();
    const auto last = document_from(*dataset, from + held);
    if (!last.ok()) return last.status();
    if (auto status = add_run(*dataset, next, *first, train); !status.ok()) return status;
    if (auto status = add_run(*dataset, *first, *last, eval); !status.ok()) return status;
    next = *last;
  }
  if (auto status = add_run(*dataset, next, dataset->documents(), train); !status.ok())
    return status;
  return CorpusSplit{Corpus(dataset, std::move(train)), Corpus(dataset, std::move(eval))};
}

}  // namespace muster::trainer
