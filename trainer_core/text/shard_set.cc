#include "trainer_core/text/shard_set.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/files/file_lock.h"
#include "common/files/file_write.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

// Tokens of a finished shard that are counted per read.
constexpr size_t kCountBlock = 64 << 10;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error))
    names.push_back(entry->path().filename().string());
  return names;
}

// Returns whether a name is that of a temporary file of a killed run: "index.json.tmp-4711-0",
// "shard-00007.mtok.tmp".
bool is_temporary(const std::string& name) {
  const size_t end = name.rfind(".tmp");
  if (end == std::string::npos) return false;
  const std::string file = name.substr(0, end);
  return file == kTokenIndexFile || file == kJournalFile || shard_generation(file).has_value();
}

uint64_t next_generation(const std::string& folder) {
  uint64_t next = 0;
  for (const std::string& name : names_in(folder)) {
    if (const auto generation = shard_generation(name)) next = std::max(next, *generation + 1);
  }
  return next;
}

std::set<std::string> published_shards(const std::string& folder) {
  std::set<std::string> names;
  const auto index = read_token_index(folder);
  if (!index.ok()) return names;
  for (const TokenIndex::Shard& shard : index->shards) names.insert(shard.file);
  return names;
}

// Returns whether a run was killed after it had published its index and before it removed its
// journal. The same run resumes even then, so that the same command gives the same files whenever
// it is killed. Any other run starts from the beginning, which loses nothing.
bool is_published(const std::string& folder, uint64_t generation) {
  const std::set<std::string> names = published_shards(folder);
  return std::any_of(names.begin(), names.end(), [generation](const std::string& name) {
    return shard_generation(name) == generation;
  });
}

void remove_generation(const std::string& folder, uint64_t generation) {
  std::error_code ignored;
  for (const std::string& name : names_in(folder)) {
    if (shard_generation(name) == generation) fs::remove(fs::path(folder) / name, ignored);
  }
}

absl::StatusOr<int> lock_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return errno_status(error.value(), absl::StrCat("cannot make folder ", folder));
  const auto lock = try_lock(folder);
  if (!lock.ok()) return lock.status();
  if (lock->has_value()) return **lock;
  return absl::FailedPreconditionError(absl::StrCat(
      "another muster tokenize is writing to ", folder, "; wait for it, or name another folder"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardSet>> ShardSet::open(const Options& options,
                                                         const Tokenizer& tokenizer,
                                                         const RunIdentity& run) {
  const auto lock = lock_folder(options.folder);
  if (!lock.ok()) return lock.status();
  auto set = absl::WrapUnique(new ShardSet(options, tokenizer, *lock));
  if (auto status = set->begin(run); !status.ok()) return status;
  return set;
}

ShardSet::ShardSet(const Options& options, const Tokenizer& tokenizer, int lock)
    : options_(options), lock_(lock), token_counts_(static_cast<size_t>(tokenizer.vocab_size())) {
  index_.vocab_size = static_cast<uint32_t>(tokenizer.vocab_size());
  index_.tokenizer_fingerprint = tokenizer.fingerprint();
}

ShardSet::~ShardSet() { close(lock_); }

absl::Status ShardSet::begin(const RunIdentity& run) {
  inputs_.resize(run.inputs.size());
  auto earlier = Journal::read(options_.folder);
  if (!earlier.ok()) return earlier.status();
  const absl::Status same = *earlier ? check_same_run(**earlier, run) : absl::OkStatus();
  if (*earlier && (options_.restart || !same.ok()) &&
      is_published(options_.folder, (*earlier)->generation))
    earlier->reset();
  const bool has_shards = *earlier && !(*earlier)->shards.empty();
  if (has_shards && !options_.restart) {
    if (!same.ok())
      return absl::Status(same.code(), absl::StrCat(options_.folder, ": ", same.message()));
    journal_content_.generation = (*earlier)->generation;
    keep((*earlier)->shards);
  } else {
    if (*earlier) remove_generation(options_.folder, (*earlier)->generation);
    journal_content_.generation = next_generation(options_.folder);
  }
  journal_content_.run = run;
  auto journal = Journal::begin(options_.folder, journal_content_);
  if (!journal.ok()) return journal.status();
  journal_ = std::move(*journal);
  return absl::OkStatus();
}

void ShardSet::keep(const std::vector<FinishedShard>& shards) {
  for (const FinishedShard& shard : shards) {
    if (!is_whole(shard)) break;
    index_.shards.push_back({shard.file, shard.header.token_count, shard.header.document_count});
    index_.tokens += shard.header.token_count;
    index_.documents += shard.header.document_count;
    position_ = shard.end;
    file_position_ = shard.file_position;
    counts_ = shard.counts;
    for (const auto& [file, input] : shard.inputs) {
      if (file < inputs_.size()) inputs_[file].add(input);
    }
    journal_content_.shards.push_back(shard);
  }
  kept_shards_ = index_.shards.size();
}

bool ShardSet::is_whole(const FinishedShard& shard) {
  const auto reader = ShardReader::open(path_of(shard.file));
  if (!reader.ok()) return false;
  ShardHeader expected = shard.header;
  expected.token_bytes = token_bytes_for(index_.vocab_size);
  expected.vocab_size = index_.vocab_size;
  expected.tokenizer_fingerprint = index_.tokenizer_fingerprint;
  expected.block_bytes = kShardBlockBytes;
  expected.has_weights = options_.has_weights;
  if ((*reader)->header() != expected || !(*reader)->verify_payload().ok()) return false;
  std::vector<int32_t> ids;
  for (uint64_t at = 0; at < expected.token_count; at += ids.size()) {
    ids.resize(static_cast<size_t>(std::min<uint64_t>(kCountBlock, expected.token_count - at)));
    if (!(*reader)->read(at, ids).ok()) return false;
    count(ids);
  }
  return true;
}

void ShardSet::count(std::span<const int32_t> ids) {
  for (const int32_t id : ids) ++token_counts_[static_cast<size_t>(id)];
}

absl::Status ShardSet::append(const EncodedChunk& chunk) {
  position_ = chunk.end;
  file_position_ = chunk.file_position;
  counts_.add(chunk.counts);
  new_inputs_[chunk.end.file].add(chunk.input());
  if (chunk.documents.empty()) return absl::OkStatus();
  if (writer_ == nullptr) {
    const std::string name = shard_file_name(index_.shards.size(), journal_content_.generation);
    auto writer = ShardWriter::create(path_of(name), index_.vocab_size,
                                      index_.tokenizer_fingerprint, options_.has_weights);
    if (!writer.ok()) return writer.status();
    writer_ = std::move(*writer);
  }
  if (auto status = writer_->append(chunk.ids, chunk.documents, chunk.weights); !status.ok())
    return status;
  count(chunk.ids);
  const bool is_full = writer_->token_count() >= options_.shard_tokens ||
                       writer_->document_count() >= kShardDocumentsMax;
  return is_full ? close_shard() : absl::OkStatus();
}

absl::Status ShardSet::close_shard() {
  const std::string name = shard_file_name(index_.shards.size(), journal_content_.generation);
  const auto header = writer_->finish();
  writer_.reset();
  if (!header.ok()) return header.status();
  // The name of the file must be on disk before it is in the journal.
  if (auto status = sync_path(options_.folder); !status.ok()) return status;
  const FinishedShard shard{name,           *header, position_,
                            file_position_, counts_, std::exchange(new_inputs_, {})};
  for (const auto& [file, input] : shard.inputs) inputs_[file].add(input);
  if (auto status = journal_->append(shard); !status.ok()) return status;
  journal_content_.shards.push_back(shard);
  index_.shards.push_back({name, header->token_count, header->document_count});
  index_.tokens += header->token_count;
  index_.documents += header->document_count;
  return absl::OkStatus();
}

absl::StatusOr<TokenIndex> ShardSet::finish() {
  if (writer_ != nullptr) {
    if (auto status = close_shard(); !status.ok()) return status;
  }
  // Chunks without documents may follow the last shard.
  for (const auto& [file, input] : std::exchange(new_inputs_, {})) inputs_[file].add(input);
  TokenIndex index = index_;
  index.bytes = counts_.text_bytes;
  for (const uint64_t times : token_counts_) {
    if (times == 0) continue;
    const double share = static_cast<double>(times) / static_cast<double>(index.tokens);
    index.unigram_entropy_nats -= share * std::log(share);
  }
  return index;
}

absl::Status ShardSet::publish(const TokenIndex& index) {
  if (auto status = write_token_index(options_.folder, index); !status.ok()) return status;
  const std::set<std::string> current = published_shards(options_.folder);
  std::error_code ignored;
  for (const std::string& name : names_in(options_.folder)) {
    const bool is_old = shard_generation(name) && !current.contains(name);
    if (is_old || is_temporary(name)) fs::remove(fs::path(options_.folder) / name, ignored);
  }
  // The journal is removed last: until then the same command can resume.
  Journal::remove(options_.folder);
  return absl::OkStatus();
}

void ShardSet::abandon() {
  writer_.reset();
  if (finished_shards() == 0) Journal::remove(options_.folder);
}

std::string ShardSet::path_of(const std::string& name) const {
  return absl::StrCat(options_.folder, "/", name);
}

}  // namespace muster::trainer
