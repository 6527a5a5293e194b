#include "trainer_core/data/tokenize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "common/errno_status.h"
#include "common/file_write.h"
#include "trainer_core/data/shard.h"
#include "trainer_core/data/text_file.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

// A chunk is what one thread encodes at a time: large enough to forget the hand-over, small enough
// for progress.
constexpr size_t kChunkBytes = 256 << 10;
// Chunks encoded by each thread between two writes; bounds what is held in memory.
constexpr size_t kChunksPerThread = 4;
// Shards are made here and moved into place when all are whole.
constexpr char kStagingFolder[] = ".staging";

struct Encoded {
  std::vector<int32_t> ids;
  uint64_t documents = 0;
  absl::Status status;
};

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\v\f") == std::string_view::npos;
}

// Encodes the documents of one chunk. Chunks begin and end at document boundaries.
class ChunkEncoder {
 public:
  ChunkEncoder(const Tokenizer& tokenizer, const TokenizeOptions& options)
      : tokenizer_(tokenizer), options_(options) {}

  Encoded encode(std::string_view chunk) const {
    Encoded out;
    std::string paragraph;
    while (!chunk.empty() && out.status.ok()) {
      const size_t end = std::min(chunk.find('\n'), chunk.size());
      std::string_view line = chunk.substr(0, end);
      chunk.remove_prefix(std::min(end + 1, chunk.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (options_.documents == TokenizeOptions::Documents::kLines) {
        if (!is_blank(line)) append(line, out);
      } else if (!is_blank(line)) {
        if (!paragraph.empty()) paragraph += '\n';
        paragraph += line;
      } else {
        flush(paragraph, out);
      }
    }
    flush(paragraph, out);
    return out;
  }

 private:
  void flush(std::string& paragraph, Encoded& out) const {
    if (!paragraph.empty()) append(paragraph, out);
    paragraph.clear();
  }

  void append(std::string_view document, Encoded& out) const {
    auto ids = tokenizer_.encode(document);
    if (!ids.ok()) {
      out.status = ids.status();
      return;
    }
    out.ids.insert(out.ids.end(), ids->begin(), ids->end());
    if (options_.add_eos) out.ids.push_back(tokenizer_.eos_id());
    ++out.documents;
  }

  const Tokenizer& tokenizer_;
  const TokenizeOptions& options_;
};

// Cuts at the first document boundary after kChunkBytes.
std::vector<std::string_view> split_chunks(std::string_view text,
                                           TokenizeOptions::Documents documents) {
  const std::string_view boundary = documents == TokenizeOptions::Documents::kLines ? "\n" : "\n\n";
  std::vector<std::string_view> chunks;
  while (!text.empty()) {
    const size_t at =
        text.size() <= kChunkBytes ? std::string_view::npos : text.find(boundary, kChunkBytes);
    const size_t end = at == std::string_view::npos ? text.size() : at + boundary.size();
    chunks.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return chunks;
}

std::vector<Encoded> encode_chunks(const ChunkEncoder& encoder,
                                   std::span<const std::string_view> chunks, size_t threads) {
  std::vector<Encoded> results(chunks.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < chunks.size(); i = next++) results[i] = encoder.encode(chunks[i]);
  };
  std::vector<std::thread> workers;
  for (size_t t = 1; t < std::min(threads, chunks.size()); ++t) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  return results;
}

// Spreads tokens over shards in the staging folder and counts them.
class ShardSet {
 public:
  ShardSet(std::string folder, uint64_t generation, const Tokenizer& tokenizer,
           uint64_t shard_tokens)
      : folder_(std::move(folder)),
        generation_(generation),
        shard_tokens_(shard_tokens),
        counts_(static_cast<size_t>(tokenizer.vocab_size())) {
    index_.vocab_size = static_cast<uint32_t>(tokenizer.vocab_size());
    index_.tokenizer_fingerprint = tokenizer.fingerprint();
  }

  absl::Status append(const Encoded& chunk) {
    if (!chunk.status.ok()) return chunk.status;
    if (writer_ == nullptr) {
      const std::string path = absl::StrCat(folder_, "/", next_name());
      auto writer = ShardWriter::create(path, index_.vocab_size, index_.tokenizer_fingerprint);
      if (!writer.ok()) return writer.status();
      writer_ = std::move(*writer);
    }
    if (auto status = writer_->append(chunk.ids, chunk.documents); !status.ok()) return status;
    for (const int32_t id : chunk.ids) ++counts_[static_cast<size_t>(id)];
    return writer_->token_count() >= shard_tokens_ ? close_shard() : absl::OkStatus();
  }

  absl::StatusOr<TokenIndex> finish() {
    if (writer_ != nullptr) {
      if (auto status = close_shard(); !status.ok()) return status;
    }
    for (const uint64_t count : counts_) {
      if (count == 0) continue;
      const double share = static_cast<double>(count) / static_cast<double>(index_.tokens);
      index_.unigram_entropy_nats -= share * std::log(share);
    }
    return index_;
  }

 private:
  std::string next_name() const { return shard_file_name(index_.shards.size(), generation_); }

  absl::Status close_shard() {
    auto header = writer_->finish();
    writer_.reset();
    if (!header.ok()) return header.status();
    index_.shards.push_back({next_name(), header->token_count, header->document_count});
    index_.tokens += header->token_count;
    index_.documents += header->document_count;
    return absl::OkStatus();
  }

  std::string folder_;
  uint64_t generation_;
  uint64_t shard_tokens_;
  std::vector<uint64_t> counts_;
  std::unique_ptr<ShardWriter> writer_;
  TokenIndex index_;
};

absl::Status io_error(const std::error_code& error, const std::string& what) {
  return errno_status(error.value(), what);
}

absl::Status make_staging(const std::string& staging) {
  std::error_code error;
  fs::remove_all(staging, error);  // of a run that was killed
  fs::create_directories(staging, error);
  return error ? io_error(error, absl::StrCat("cannot make folder ", staging)) : absl::OkStatus();
}

// Names of shards in the folder: of its data set, and what a run that was killed has left.
std::vector<std::string> shard_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (shard_generation(name)) names.push_back(std::move(name));
  }
  return names;
}

uint64_t next_generation(const std::string& folder) {
  uint64_t next = 0;
  for (const std::string& name : shard_names(folder))
    next = std::max(next, *shard_generation(name) + 1);
  return next;
}

// Moves the new shards beside the old ones, then the index that makes them count, then drops the old ones.
absl::Status publish(const std::string& staging, const std::string& folder,
                     const TokenIndex& index) {
  std::error_code error;
  std::set<std::string> current;
  for (const TokenIndex::Shard& shard : index.shards) {
    fs::rename(fs::path(staging) / shard.file, fs::path(folder) / shard.file, error);
    if (error) return io_error(error, absl::StrCat("cannot move ", shard.file, " into ", folder));
    current.insert(shard.file);
  }
  if (auto status = sync_path(folder); !status.ok()) return status;
  if (auto status = write_token_index(folder, index); !status.ok()) return status;
  for (const std::string& name : shard_names(folder)) {
    if (!current.contains(name)) fs::remove(fs::path(folder) / name, error);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenIndex> tokenize_file(const TokenizeOptions& options,
                                         const ProgressFn& progress) {
  auto tokenizer = Tokenizer::load(options.tokenizer_path);
  if (!tokenizer.ok()) return tokenizer.status();
  if (options.add_eos && (*tokenizer)->eos_id() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer ", options.tokenizer_path,
                     " has no end-of-sequence id; tokenise with add_eos=false"));
  }
  auto file = TextFile::open(options.input);
  if (!file.ok()) return file.status();
  const std::string_view text = (*file)->text();
  if (auto status = check_is_text(text, options.input); !status.ok()) return status;

  const std::string staging = absl::StrCat(options.output_directory, "/", kStagingFolder);
  if (auto status = make_staging(staging); !status.ok()) return status;
  absl::Cleanup remove_staging = [&staging] {
    std::error_code ignored;
    fs::remove_all(staging, ignored);
  };

  const auto cores = std::max(1U, std::thread::hardware_concurrency());
  const size_t threads = options.threads > 0 ? static_cast<size_t>(options.threads) : cores;
  const std::vector<std::string_view> chunks = split_chunks(text, options.documents);
  const ChunkEncoder encoder(**tokenizer, options);
  ShardSet shards(staging, next_generation(options.output_directory), **tokenizer,
                  options.shard_tokens);
  for (size_t i = 0; i < chunks.size();) {
    const size_t wave = std::min(threads * kChunksPerThread, chunks.size() - i);
    for (const Encoded& encoded :
         encode_chunks(encoder, std::span(chunks).subspan(i, wave), threads)) {
      if (auto status = shards.append(encoded); !status.ok()) return status;
    }
    i += wave;
    const char* done = i < chunks.size() ? chunks[i].data() : text.data() + text.size();
    if (progress) progress(static_cast<uint64_t>(done - text.data()), text.size());
  }
  auto index = shards.finish();
  if (!index.ok()) return index.status();
  index->bytes = text.size();
  if (auto status = publish(staging, options.output_directory, *index); !status.ok()) return status;
  return index;
}

}  // namespace muster::trainer
