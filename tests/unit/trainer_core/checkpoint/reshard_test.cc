// Files of several writers form one checkpoint, which readers with any other boxes restore without
// reading other data.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "trainer_core/base/bf16.h"
#include "trainer_core/checkpoint/checkpoint.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

const std::vector<TensorRow> kRows = {
    {"embed", {12, 10}, 0}, {"norm", {24}, 120}, {"experts", {4, 6, 5}, 144}, {"scale", {}, 264}};
constexpr int64_t kElements = 265;

// One of `ranks` shards if every tensor that allows it is split along dimension `dim`; rank 0 has
// the others.
struct Shard {
  Shard(int rank, int ranks, size_t dim) {
    for (const TensorRow& row : kRows) {
      TensorBox box = whole_box(row);
      const bool is_cut = dim < row.shape.size() && row.shape[dim] % ranks == 0;
      if (!is_cut && rank != 0) continue;
      if (is_cut) {
        box.extent[dim] /= ranks;
        box.begin[dim] = rank * box.extent[dim];
      }
      box.offset = elements;
      elements += box.elements();
      boxes.push_back(std::move(box));
    }
    block.resize(static_cast<size_t>(elements), -1);
  }

  std::vector<TensorBox> boxes;
  std::vector<float> block;
  int64_t elements = 0;
};

// Fills the shard with the model's elements at its indices.
void fill(Shard& shard, std::span<const float> model) {
  for (const TensorBox& box : shard.boxes) {
    const auto row = std::ranges::find(kRows, box.tensor, &TensorRow::name);
    const CommonRuns runs(whole_box(*row), box);
    for (int64_t i = 0; i < runs.count(); ++i) {
      const auto [from, to] = runs.at(i);
      std::copy_n(model.begin() + row->offset + from, runs.length(),
                  shard.block.begin() + box.offset + to);
    }
  }
}

class Reshard : public testing::Test {
 protected:
  void SetUp() override { std::iota(model_.begin(), model_.end(), 1.0F); }

  // Replaces the checkpoint, with files of at most `file_bytes`; returns the manifest as stored.
  Manifest write(int writers, size_t dim, int64_t file_bytes) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      std::filesystem::remove_all(entry.path());
    Manifest manifest{{.folder = "", .step = 1, .samples = 8, .config = {}}, {}};
    for (int rank = 0; rank < writers; ++rank) {
      Shard shard(rank, writers, dim);
      fill(shard, model_);
      auto files = write_boxes(folder_.path(), CheckpointPart::kModel, rank, shard.boxes,
                               shard.block, file_bytes);
      EXPECT_TRUE(files.ok()) << files.status();
      for (StoredFile& file : *files) manifest.files.push_back(std::move(file));
    }
    write_file(folder_.file(kManifestFile), manifest_text(manifest));
    auto read = read_manifest(folder_.path());
    EXPECT_TRUE(read.ok()) << read.status();
    return *read;
  }

  TempFolder folder_;
  std::vector<float> model_ = std::vector<float>(kElements);
};

TEST_F(Reshard, AnyWritersAndAnyReaders) {
  int files = 0;
  for (const auto& [writers, dim, file_bytes] :
       {std::tuple(1, 0, 1 << 20), std::tuple(1, 0, 100), std::tuple(4, 0, 64),
        std::tuple(2, 1, 1 << 20), std::tuple(3, 0, 48), std::tuple(5, 2, 4)}) {
    const Manifest manifest = write(writers, static_cast<size_t>(dim), file_bytes);
    files += static_cast<int>(manifest.files.size());
    for (const int readers : {1, 2, 3, 4, 6}) {
      for (const size_t read_dim : {0, 1, 2}) {
        for (int rank = 0; rank < readers; ++rank) {
          Shard expected(rank, readers, read_dim), got(rank, readers, read_dim);
          fill(expected, model_);
          const auto status = read_boxes(manifest, CheckpointPart::kModel, got.boxes, got.block);
          ASSERT_TRUE(status.ok()) << status;
          ASSERT_EQ(got.block, expected.block)
              << writers << " writers along " << dim << ", reader " << rank << " of " << readers
              << " along " << read_dim;
        }
      }
    }
  }
  EXPECT_GT(files, 30) << "bounded files are many";
}

TEST_F(Reshard, FilesHaveTheRequestedSizeAndAnyLibraryReadsThem) {
  const Manifest manifest = write(1, 0, 100);
  for (const StoredFile& file : manifest.files) {
    int64_t elements = 0;
    for (const StoredBox& box : file.boxes) elements += box.box.elements();
    if (elements <= 25) continue;  // elements of 4 bytes
    EXPECT_EQ(file.boxes.size(), 1U) << file.name;
    EXPECT_EQ(file.boxes[0].box.extent[0], 1) << file.name << " is larger than one row";
  }
  // The boxes of one tensor one after the other are the tensor.
  std::vector<float> embed;
  for (const auto& stored : manifest.files) {
    for (const StoredBox& box : stored.boxes) {
      if (box.box.tensor != "embed") continue;
      const std::string bytes = read_file(folder_.file(stored.name));
      const auto* numbers = reinterpret_cast<const float*>(bytes.data() + box.at);
      embed.insert(embed.end(), numbers, numbers + box.box.elements());
    }
  }
  EXPECT_EQ(embed, std::vector<float>(model_.begin(), model_.begin() + 120));
}

// A reader of one tensor opens the files that have a part of it, and reads the blocks that hold it.
TEST_F(Reshard, UnrequestedDataIsNotRead) {
  const Manifest manifest = write(1, 0, 100);
  for (const StoredFile& file : manifest.files) {
    const bool has_norm = std::ranges::any_of(
        file.boxes, [](const StoredBox& box) { return box.box.tensor == "norm"; });
    if (!has_norm) fs::remove(folder_.file(file.name));
  }
  std::vector<float> norm(24);
  ASSERT_TRUE(
      read_boxes(manifest, CheckpointPart::kModel, {whole_box({"norm", {24}, 0})}, norm).ok());
  EXPECT_EQ(norm, std::vector<float>(model_.begin() + 120, model_.begin() + 144));
  std::vector<float> all(kElements);
  const auto status = read_boxes(manifest, CheckpointPart::kModel, boxes_of_rows(kRows), all);
  EXPECT_THAT(std::string(status.message()), HasSubstr("it has no model-00000-00000.safetensors"));
}

// Tensors of several blocks: only readers of a damaged block notice the damage; the error names
// bytes and tensor.
TEST(ReshardBlocks, DamageIsFoundWhereItIsRead) {
  constexpr int64_t kRowsOfLarge = 3'000, kColumns = 1'000;  // 12 MB: three blocks
  const TensorRow large{"large", {kRowsOfLarge, kColumns}, 0};
  TempFolder folder;
  std::vector<float> numbers(kRowsOfLarge * kColumns);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  Manifest manifest{{.folder = folder.path(), .step = 1, .samples = 0, .config = {}}, {}};
  auto files = write_boxes(folder.path(), CheckpointPart::kModel, 0, {whole_box(large)}, numbers,
                           kCheckpointFileBytes);
  ASSERT_TRUE(files.ok()) << files.status();
  manifest.files = *files;
  ASSERT_EQ(manifest.files[0].digest.blocks.size(), 3U);
  std::vector<float> got(numbers.size());
  ASSERT_TRUE(read_boxes(manifest, CheckpointPart::kModel, {whole_box(large)}, got).ok());
  EXPECT_EQ(got, numbers);

  const std::string path = folder.file(manifest.files[0].name);
  std::string bytes = read_file(path);
  bytes[5'000'000] = static_cast<char>(bytes[5'000'000] ^ 4);
  write_file(path, bytes);
  const auto status = read_boxes(manifest, CheckpointPart::kModel, {whole_box(large)}, got);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(),
            "model-00000-00000.safetensors is damaged: the checksum of its bytes 4194304 to "
            "8388607 differs (tensor large)");
  // The first 1,000 rows end before the second block; their second half of columns, too.
  for (const int64_t from : {int64_t{0}, kColumns / 2}) {
    const TensorBox first{"large", large.shape, {0, from}, {1'000, kColumns / 2}, 0};
    std::vector<float> half(500'000, -1);
    ASSERT_TRUE(read_boxes(manifest, CheckpointPart::kModel, {first}, half).ok());
    EXPECT_EQ(half[0], static_cast<float>(from));
    EXPECT_EQ(half[499'999], static_cast<float>(999 * kColumns + from + 499));
  }
  const TensorBox column{"large", large.shape, {0, 7}, {kRowsOfLarge, 1}, 0};
  EXPECT_FALSE(read_boxes(manifest, CheckpointPart::kModel, {column}, got).ok());
}

// A bf16 moment beside an fp32 one, each larger than a block of the file: read in the stored type,
// and converted by readers with the other type.
TEST(ReshardTypes, ElementsConvertToTheRequestedType) {
  constexpr int64_t kHeight = 3, kWidth = 700'003;  // odd: fp32 behind it would lie across blocks
  const auto number = [](int64_t i) { return static_cast<float>(i * 7 % 256); };  // bf16 has each
  // Columns [begin, begin + width) of both tensors, one after the other.
  struct Part {
    Part(DType m, DType v, int64_t begin, int64_t width) {
      int64_t bytes = 0;
      for (const auto& [name, dtype] : {std::pair("m", m), std::pair("v", v)}) {
        const auto size = static_cast<int64_t>(dtype_bytes(dtype));
        boxes.push_back(
            {name, {kHeight, kWidth}, {0, begin}, {kHeight, width}, bytes / size, dtype});
        bytes += (kHeight * width * size + 3) / 4 * 4;
      }
      block.resize(static_cast<size_t>(bytes) / sizeof(float));
    }
    float get(const TensorBox& box, int64_t i) const {
      if (box.dtype == DType::kF32) return block[static_cast<size_t>(box.offset + i)];
      return reinterpret_cast<const Bf16*>(block.data())[box.offset + i].value();
    }
    void set(const TensorBox& box, int64_t i, float value) {
      if (box.dtype == DType::kF32) {
        block[static_cast<size_t>(box.offset + i)] = value;
      } else {
        reinterpret_cast<Bf16*>(block.data())[box.offset + i] = Bf16::round(value);
      }
    }
    std::vector<TensorBox> boxes;
    std::vector<float> block;
  };
  // Maps an element of a box to its index in the full tensor.
  const auto in_whole = [](const TensorBox& box, int64_t i) {
    return i / box.extent[1] * kWidth + box.begin[1] + i % box.extent[1];
  };
  TempFolder folder;
  Manifest manifest{{.folder = folder.path(), .step = 1, .samples = 8, .config = {}}, {}};
  int writer = 0;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>(0, 690'001), {690'001, kWidth}}) {
    Part part(DType::kBf16, DType::kF32, begin, end - begin);
    for (const TensorBox& box : part.boxes) {
      for (int64_t i = 0; i < box.elements(); ++i) part.set(box, i, number(in_whole(box, i)));
    }
    auto files = write_boxes(folder.path(), CheckpointPart::kOptimizer, writer++, part.boxes,
                             part.block, int64_t{1} << 30);
    ASSERT_TRUE(files.ok()) << files.status();
    EXPECT_EQ(files->size(), 2U) << "a file has elements of one type";
    std::ranges::move(*files, std::back_inserter(manifest.files));
  }
  write_file(folder.file(kManifestFile), manifest_text(manifest));
  const auto read = read_manifest(folder.path());
  ASSERT_TRUE(read.ok()) << read.status();
  for (const bool swapped : {false, true}) {
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>(0, 3), {3, kWidth}}) {
      Part part(swapped ? DType::kF32 : DType::kBf16, swapped ? DType::kBf16 : DType::kF32, begin,
                end - begin);
      const absl::Status status =
          read_boxes(*read, CheckpointPart::kOptimizer, part.boxes, part.block);
      ASSERT_TRUE(status.ok()) << status;
      for (const TensorBox& box : part.boxes) {
        for (int64_t i = 0; i < box.elements(); ++i) {
          const bool same = part.get(box, i) == number(in_whole(box, i));
          ASSERT_TRUE(same) << box.tensor << " element " << i << " is " << part.get(box, i);
        }
      }
    }
  }
}

}  // namespace
}  // namespace muster::trainer
