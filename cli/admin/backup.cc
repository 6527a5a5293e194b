// muster admin backup: a consistent copy of the coordinator's state.
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

#include "cli/admin/admin.h"
#include "cli/client.h"
#include "cli/terminal/terminal.h"
#include "common/files/errno_status.h"
#include "common/files/file_write.h"

namespace muster::cli {
namespace {

struct BackupOptions {
  std::string out;
  CoordinatorTarget coordinator;
  bool json = false;
};

// A file that replaces another one only when it is complete. The destructor removes what is not
// complete.
class ReceivedFile {
 public:
  explicit ReceivedFile(std::string path)
      : path_(std::move(path)), partial_(absl::StrCat(path_, ".partial")) {
    EVP_DigestInit_ex(digest_.get(), EVP_sha256(), nullptr);
  }
  ~ReceivedFile() {
    if (fd_ < 0) return;
    close(fd_);
    unlink(partial_.c_str());
  }
  ReceivedFile(const ReceivedFile&) = delete;
  ReceivedFile& operator=(const ReceivedFile&) = delete;

  absl::Status take(const v1::BackupChunk& chunk) {
    // Only the owner may read it, because it has the environments of jobs.
    if (fd_ < 0) fd_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd_ < 0 || fchmod(fd_, 0600) != 0) return errno_status(errno, partial_);
    if (absl::Status status = write_all(fd_, chunk.data()); !status.ok())
      return absl::Status(status.code(), absl::StrCat(partial_, ": ", status.message()));
    EVP_DigestUpdate(digest_.get(), chunk.data().data(), chunk.data().size());
    bytes_ += chunk.data().size();
    expected_bytes_ = chunk.total_bytes();
    expected_sha256_ = chunk.sha256();
    return absl::OkStatus();
  }

  // Verifies size and digest, and gives the file its name.
  absl::Status complete() {
    sha256_.resize(EVP_MAX_MD_SIZE);
    unsigned size = 0;
    EVP_DigestFinal_ex(digest_.get(), reinterpret_cast<unsigned char*>(sha256_.data()), &size);
    sha256_.resize(size);
    if (fd_ < 0 || bytes_ != expected_bytes_ || sha256_ != expected_sha256_) {
      return absl::DataLossError(absl::StrCat("the copy arrived incomplete: ", bytes_, " of ",
                                              expected_bytes_, " bytes; try again"));
    }
    if (fsync(fd_) != 0) return errno_status(errno, partial_);
    if (rename(partial_.c_str(), path_.c_str()) != 0) return errno_status(errno, path_);
    close(std::exchange(fd_, -1));
    const std::string folder = std::filesystem::path(path_).parent_path();
    return sync_path(folder.empty() ? "." : folder);
  }

  uint64_t bytes() const { return bytes_; }
  std::string sha256() const { return absl::BytesToHexString(sha256_); }

 private:
  struct FreeDigest {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };

  const std::string path_;
  const std::string partial_;
  std::unique_ptr<EVP_MD_CTX, FreeDigest> digest_{EVP_MD_CTX_new()};
  int fd_ = -1;  // owned
  uint64_t bytes_ = 0;
  uint64_t expected_bytes_ = 0;
  std::string expected_sha256_;
  std::string sha256_;
};

int backup(const BackupOptions& options) {
  std::error_code error;  // that of a folder that cannot be read follows when the file is created
  if (std::filesystem::is_directory(options.out, error))
    return fail(absl::InvalidArgumentError(
        absl::StrCat("--out=", options.out, " is a folder: name a file in it")));
  ReceivedFile file(options.out);
  absl::Status written;
  absl::Status status = Client(options.coordinator).backup_state([&](const v1::BackupChunk& chunk) {
    written = file.take(chunk);
    return written.ok();
  });
  if (absl::IsUnimplemented(status))
    status = absl::UnimplementedError("the coordinator is older than this command: update it");
  status.Update(written);
  if (status.ok()) status = file.complete();
  if (!status.ok()) return fail(status);
  if (options.json) {
    const nlohmann::json out = {
        {"file", options.out}, {"bytes", file.bytes()}, {"sha256", file.sha256()}};
    return print_result(out.dump(2) + "\n");
  }
  return print_result(absl::StrFormat(
      "%s: %.1f MiB, integrity checked. It has the environments of jobs: store it like a secret.\n",
      options.out, static_cast<double>(file.bytes()) / (1 << 20)));
}

}  // namespace

void declare_backup(CLI::App& admin, Action& action) {
  auto options = std::make_shared<BackupOptions>();
  CLI::App* command = admin.add_subcommand(
      "backup", "Copy the coordinator's state into a file, while the coordinator works");
  command->group("Commands");
  command
      ->add_option("--out", options->out,
                   "The copy; an existing file is replaced when the new one is complete")
      ->type_name("FILE")
      ->required();
  add_coordinator_option(*command, options->coordinator);
  add_json_option(*command, options->json);
  command->footer(
      "Restore: stop the coordinator, move STATE_DIR/muster.db, muster.db-wal and muster.db-shm "
      "away,\ncopy the file to STATE_DIR/muster.db, start the coordinator. Jobs that ran start "
      "again from their\ncheckpoints; later submissions are lost (docs/recovery.md).\n\n"
      "Example:\n  muster admin backup --out /backup/muster-$(date +%F).db");
  on_call(*command, action, options, backup);
}

}  // namespace muster::cli
