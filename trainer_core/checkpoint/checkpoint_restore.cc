#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/stored_tensor.h"
#include "trainer_core/checkpoint/visible.h"

namespace muster::trainer {
namespace {

// Returns the error of a file that cannot be read. A missing file is damage of the checkpoint;
// other errors of the disk may be temporary.
absl::Status cannot_read(int error, const std::string& name) {
  if (error == ENOENT)
    return not_visible_yet(absl::DataLossError(absl::StrCat("it has no ", name)));
  return file_status(error, absl::StrCat("cannot read ", name));
}

absl::StatusOr<std::string> manifest_bytes(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return cannot_read(errno, kManifestFile);
  absl::Cleanup close_file = [fd] { close(fd); };
  constexpr size_t kPiece = 64 << 10;
  std::string text;
  for (size_t bytes = 0;;) {
    text.resize(bytes + kPiece);
    const ssize_t count = read(fd, text.data() + bytes, kPiece);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return cannot_read(errno, kManifestFile);
    bytes += static_cast<size_t>(count);
    text.resize(bytes);
    if (count == 0) return text;
    if (bytes > kManifestBytesMax)
      return absl::DataLossError(
          absl::StrCat(kManifestFile, " has more than ", kManifestBytesMax, " bytes"));
  }
}

absl::Status check_size(const std::string& folder, const StoredFile& file) {
  std::error_code error;
  const uint64_t actual = std::filesystem::file_size(absl::StrCat(folder, "/", file.name), error);
  if (error) return cannot_read(error.value(), file.name);
  if (actual == file.digest.bytes) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(file.name, " is truncated or was changed: ", actual,
                                          " bytes, the manifest states ", file.digest.bytes));
}

absl::Status verify_blocks(const Manifest& manifest) {
  const std::unique_ptr<char[]> buffer = make_block();
  for (const StoredFile& file : manifest.files) {
    auto reader = BlockReader::open(manifest.info.folder, file.name, file.digest);
    if (!reader.ok()) return reader.status();
    for (size_t i = 0; i < file.digest.blocks.size(); ++i) {
      const auto block = (*reader)->read(i, buffer.get());
      if (!block.ok()) return block.status();
      if (auto status = (*reader)->verify(i, *block); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::Status check_part(const Manifest& manifest, CheckpointPart part,
                        const std::vector<TensorRow>& rows) {
  const std::string& folder = manifest.info.folder;
  const auto stored = manifest.tensors(part);
  std::set<std::string> expected;
  for (const TensorRow& row : rows) {
    expected.insert(row.name);
    const auto tensor = stored.find(row.name);
    if (tensor == stored.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("checkpoint ", folder, " is of another model: it has no tensor ", row.name,
                       " (the config's model has it with shape ", show_shape(row.shape), ")"));
    }
    if (tensor->second.shape != row.shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("checkpoint ", folder, " is of another model: tensor ", row.name,
                       " has shape ", show_shape(tensor->second.shape), " there and ",
                       show_shape(row.shape), " in the config's model"));
    }
  }
  for (const auto& [name, kind] : stored) {
    if (expected.contains(name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint ", folder, " is of another model: it has a tensor ", name,
                     " of shape ", show_shape(kind.shape), " that the config's model has not"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Manifest> named_manifest(const std::string& folder) {
  auto manifest = read_manifest(folder);
  if (manifest.ok()) return manifest;
  return absl::Status(manifest.status().code(),
                      absl::StrCat("checkpoint ", folder, ": ", manifest.status().message()));
}

}  // namespace

absl::StatusOr<Manifest> read_manifest(const std::string& folder, FileSizes sizes) {
  const auto text = manifest_bytes(absl::StrCat(folder, "/", kManifestFile));
  if (!text.ok()) return text.status();
  auto manifest = parse_manifest(*text);
  if (!manifest.ok()) return manifest.status();
  manifest->info.folder = folder;
  if (sizes == FileSizes::kIgnore) return manifest;
  for (const StoredFile& file : manifest->files) {
    if (auto status = check_size(folder, file); !status.ok()) return status;
  }
  return manifest;
}

absl::StatusOr<Manifest> read_same_manifest(const std::string& folder,
                                            const std::string& checksum) {
  auto manifest = read_manifest(folder, FileSizes::kIgnore);
  if (!manifest.ok() || manifest->checksum == checksum) return manifest;
  return not_visible_yet(absl::FailedPreconditionError(absl::StrCat(
      folder,
      " holds another checkpoint than the one that rank 0 reads there (its manifest has the ",
      "checksum ", manifest->checksum, ", rank 0's ", checksum,
      "): it was replaced meanwhile, or is another folder of this rank's")));
}

absl::StatusOr<Manifest> read_same_manifest_when_visible(const std::string& folder,
                                                         const std::string& checksum) {
  absl::StatusOr<Manifest> manifest = absl::UnknownError("not read");
  // An error states how long was waited.
  const absl::Status status = when_visible([&] {
    manifest = read_same_manifest(folder, checksum);
    return manifest.status();
  });
  if (!status.ok()) return status;
  return manifest;
}

absl::StatusOr<CheckpointInfo> verify_checkpoint(const std::string& folder, bool checksums) {
  auto manifest = read_manifest(folder);
  if (!manifest.ok()) return manifest.status();
  if (checksums) {
    if (auto status = verify_blocks(*manifest); !status.ok()) return status;
  }
  return std::move(manifest->info);
}

absl::Status check_tensors(const Manifest& manifest, const CheckpointLayout& layout) {
  if (auto status = check_part(manifest, CheckpointPart::kModel, layout.params.tensors);
      !status.ok())
    return status;
  if (manifest.info.optimizer == kNoOptimizer) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint ", manifest.info.folder,
                     " has only parameters (muster convert made it), so no training can resume "
                     "from it; set another run_name, and load_parameters_path=",
                     manifest.info.folder));
  }
  if (manifest.info.optimizer != layout.optimizer) {
    return absl::InvalidArgumentError(absl::StrCat(
        "checkpoint ", manifest.info.folder, " has the state of opt_type=", manifest.info.optimizer,
        ", which opt_type=", layout.optimizer, " cannot use; set opt_type=",
        manifest.info.optimizer, ", or another run_name to start from the beginning"));
  }
  return check_part(manifest, CheckpointPart::kOptimizer, layout.state.tensors);
}

absl::Status read_held(const Manifest& manifest, const CheckpointLayout& layout,
                       const CheckpointBlocks& blocks) {
  auto status = read_boxes(manifest, CheckpointPart::kModel, layout.params.held, blocks.params);
  if (!status.ok()) return status;
  return read_boxes(manifest, CheckpointPart::kOptimizer, layout.state.held, blocks.state);
}

absl::Status check_tensors(const std::string& folder, const CheckpointLayout& layout) {
  const auto manifest = named_manifest(folder);
  return manifest.ok() ? check_tensors(*manifest, layout) : manifest.status();
}

absl::Status restore_checkpoint(const std::string& folder, const CheckpointLayout& layout,
                                const CheckpointBlocks& blocks) {
  const auto manifest = named_manifest(folder);
  if (!manifest.ok()) return manifest.status();
  if (auto status = check_tensors(*manifest, layout); !status.ok()) return status;
  return read_held(*manifest, layout, blocks);
}

absl::Status restore_parameters(const std::string& folder, const std::vector<TensorRow>& rows,
                                const std::vector<TensorBox>& boxes, std::span<float> params) {
  const auto manifest = named_manifest(folder);
  if (!manifest.ok()) return manifest.status();
  if (auto status = check_part(*manifest, CheckpointPart::kModel, rows); !status.ok())
    return status;
  return read_boxes(*manifest, CheckpointPart::kModel, boxes, params);
}

}  // namespace muster::trainer
