#include "trainer_core/checkpoint/local_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "trainer_core/checkpoint/owner.h"
#include "trainer_core/checkpoint/publish.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

constexpr char kPartPrefix[] = "part-";

std::string part_name(int writer) { return absl::StrFormat("%s%05d.json", kPartPrefix, writer); }

absl::Status check_private(const std::string& folder) {
  struct stat info {};
  if (lstat(folder.c_str(), &info) != 0)
    return file_status(errno, absl::StrCat("cannot examine ", folder));
  if (S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0)
    return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      folder, " is no folder of this user alone; local checkpoints are not put there"));
}

// Makes a folder that only this user can access. Missing parent folders, which the user has stated
// (local_checkpoint_directory), are made with the usual permissions.
absl::Status make_private(const std::string& folder) {
  std::error_code error;
  fs::create_directories(fs::path(folder).parent_path(), error);
  if (mkdir(folder.c_str(), 0700) == 0) return absl::OkStatus();
  if (errno != EEXIST) return file_status(errno, absl::StrCat("cannot make folder ", folder));
  return check_private(folder);
}

}  // namespace

absl::Status LocalStore::open() const { return make_private(folder_); }

absl::StatusOr<std::string> LocalStore::identity() const {
  struct stat info {};
  if (stat(folder_.c_str(), &info) != 0)
    return file_status(errno, absl::StrCat("cannot examine ", folder_));
  return absl::StrCat(info.st_dev, "/", info.st_ino);
}

absl::Status LocalStore::begin(const std::string& save) const {
  const std::string folder = folder_of(save);
  if (mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
  return file_status(errno, absl::StrCat("cannot make folder ", folder));
}

absl::StatusOr<std::string> LocalStore::write(LocalPart part, const CheckpointLayout& layout,
                                              const CheckpointBlocks& blocks,
                                              int64_t file_bytes) const {
  const std::string folder = folder_of(part.save);
  auto files = write_boxes(folder, CheckpointPart::kModel, part.writer, layout.params.written,
                           blocks.params, file_bytes);
  if (!files.ok()) return files.status();
  auto state = write_boxes(folder, CheckpointPart::kOptimizer, part.writer, layout.state.written,
                           blocks.state, file_bytes);
  if (!state.ok()) return state.status();
  std::ranges::move(*state, std::back_inserter(*files));
  part.files = files_json(*files);
  part.info.optimizer = layout.optimizer;
  std::string text = local_part_text(part);
  const absl::Status kept = store_record(part, text);
  if (!kept.ok()) return kept;
  return text;
}

absl::Status LocalStore::store_record(const LocalPart& part, const std::string& text) const {
  return write_file_atomically(absl::StrCat(folder_of(part.save), "/", part_name(part.writer)),
                               text);
}

std::vector<std::string> LocalStore::parts() const {
  std::vector<std::string> texts;
  const auto saves = list_directory(folder_);
  if (!saves.ok()) return texts;
  for (const std::string& save : *saves) {
    if (step_of_local_save(save) < 0) continue;
    const auto names = list_directory(folder_of(save));
    if (!names.ok()) continue;
    for (const std::string& name : *names) {
      if (!name.starts_with(kPartPrefix) || !name.ends_with(".json")) continue;
      std::ifstream file(absl::StrCat(folder_of(save), "/", name), std::ios::binary);
      std::ostringstream text;
      text << file.rdbuf();  // an iterator would report errors as exceptions
      texts.push_back(std::move(text).str());
    }
  }
  return texts;
}

absl::Status LocalStore::verify(const std::string& save, const StoredFile& file) const {
  const std::string folder = folder_of(save);
  std::error_code error;
  if (!fs::exists(absl::StrCat(folder, "/", file.name), error))
    return absl::NotFoundError(absl::StrCat("it has no ", file.name));
  const auto reader = BlockReader::open(folder, file.name, file.digest);
  if (!reader.ok()) return reader.status();
  const std::unique_ptr<char[]> buffer = make_block();
  for (size_t i = 0; i < file.digest.blocks.size(); ++i) {
    const auto block = (*reader)->read(i, buffer.get());
    if (!block.ok()) return block.status();
    if (auto status = (*reader)->verify(i, *block); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// If the process ends during the removal, records may refer to missing files. This does no harm,
// because files are verified before they are used.
void LocalStore::remove(const std::string& save) const {
  std::error_code ignored;
  fs::remove_all(folder_of(save), ignored);
}

void LocalStore::remove_others(const std::string& save) const {
  const auto saves = list_directory(folder_);
  if (!saves.ok()) return;
  for (const std::string& name : *saves) {
    if (name != save && step_of_local_save(name) >= 0) remove(name);
  }
}

void LocalStore::remove_all() const {
  std::error_code ignored;
  if (check_private(folder_).ok()) fs::remove_all(folder_, ignored);
}

absl::StatusOr<std::unique_ptr<ArrivingFile>> ArrivingFile::create(const std::string& folder,
                                                                   const StoredFile& file) {
  const std::string path = absl::StrCat(folder, "/", file.name);
  const std::string temporary = absl::StrCat(folder, "/", kTemporaryPrefix, file.name);
  unlink(temporary.c_str());
  auto writer = BlockWriter::create(temporary);
  if (!writer.ok()) return writer.status();
  auto arriving = absl::WrapUnique(new ArrivingFile(path, temporary, file.digest));
  arriving->writer_ = std::move(*writer);
  return arriving;
}

ArrivingFile::~ArrivingFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status ArrivingFile::finish() {
  const auto digest = writer_->finish();
  if (!digest.ok()) return digest.status();
  if (*digest != digest_)
    return absl::DataLossError(absl::StrCat(path_, " has arrived with other checksums"));
  if (rename(temporary_.c_str(), path_.c_str()) != 0)
    return file_status(errno, absl::StrCat("cannot rename ", temporary_, " to ", path_));
  temporary_.clear();
  return absl::OkStatus();
}

}  // namespace muster::trainer
