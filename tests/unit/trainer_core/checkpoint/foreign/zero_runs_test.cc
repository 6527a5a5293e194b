#include "trainer_core/checkpoint/foreign/zero_runs.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/hugging_face_goldens.h"
#include "trainer_core/checkpoint/parameter_source.h"
#include "trainer_core/checkpoint/safetensors.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kMin = kMissingElementsMin;

StoredTensor matrix(uint64_t rows, uint64_t columns) {
  StoredTensor tensor;
  tensor.shape = {static_cast<int64_t>(rows), static_cast<int64_t>(columns)};
  tensor.elements = rows * columns;
  return tensor;
}

class Elements {
 public:
  explicit Elements(const StoredTensor& tensor) : values_(tensor.elements, 1.0F) {}
  void clear(uint64_t begin, uint64_t end) {
    std::fill(values_.begin() + static_cast<ptrdiff_t>(begin),
              values_.begin() + static_cast<ptrdiff_t>(end), 0.0F);
  }
  const std::vector<float>& values() const { return values_; }
  ReadElements reader() {
    return [this](uint64_t first, std::span<float> out) {
      EXPECT_LE(first + out.size(), values_.size());
      std::copy_n(values_.begin() + static_cast<ptrdiff_t>(first), out.size(), out.begin());
      read_ += out.size();
      return absl::OkStatus();
    };
  }
  uint64_t read() const { return read_; }

 private:
  std::vector<float> values_;
  uint64_t read_ = 0;
};

// Returns whether the row with `at` has enough values and zeros to be torn there, and the zeros'
// columns have a value in the row before or after it.
bool is_torn(const std::vector<float>& values, uint64_t row, uint64_t at, bool zeros_follow) {
  const uint64_t begin = at - at % row;
  const uint64_t enough = std::min<uint64_t>(64, row / 4);
  if (at == begin || at - begin < enough || begin + row - at < enough) return false;
  const uint64_t first = zeros_follow ? at : begin;
  const uint64_t end = zeros_follow ? begin + row : at;
  for (uint64_t i = first; i < end; ++i) {
    if (zeros_follow ? begin == 0 : begin + row >= values.size()) return true;
    if (values[zeros_follow ? i - row : i + row] != 0) return true;
  }
  return false;
}

// Checks every element.
std::optional<ZeroRun> reference(const StoredTensor& tensor, const std::vector<float>& values) {
  const auto row = static_cast<uint64_t>(tensor.shape.back());
  for (uint64_t i = 0; i < values.size();) {
    uint64_t end = i;
    while (end < values.size() && values[end] == 0) ++end;
    if (end - i >= kMin && (is_torn(values, row, i, true) || is_torn(values, row, end, false)))
      return ZeroRun{i, end};
    i = end + 1;
  }
  return std::nullopt;
}

TEST(ZeroRuns, AreFoundAsByASearchOfEveryElement) {
  std::mt19937_64 random(28);
  int found = 0;
  for (int i = 0; i < 300; ++i) {
    const uint64_t columns = uint64_t{1} << (random() % 12);
    const StoredTensor tensor = matrix(1 + random() % (8 * kMin / columns), columns);
    Elements elements(tensor);
    for (uint64_t runs = random() % 4; runs > 0; --runs) {
      uint64_t begin = random() % tensor.elements;
      if (random() % 2 == 0) begin -= begin % columns;
      // Some lengths are just at the bound.
      const uint64_t length = random() % 2 == 0 ? kMin - 1 + random() % 3 : random() % (3 * kMin);
      uint64_t end = std::min(tensor.elements, begin + length);
      if (random() % 3 == 0) end = std::max(begin, end - end % columns);
      elements.clear(begin, end);
    }
    const auto expected = reference(tensor, elements.values());
    const auto run = find_missing_part(tensor, elements.reader());
    ASSERT_TRUE(run.ok()) << run.status();
    ASSERT_EQ(run->has_value(), expected.has_value()) << i;
    if (!expected) continue;
    ++found;
    EXPECT_EQ((*run)->begin, expected->begin) << i;
    EXPECT_EQ((*run)->end, expected->end) << i;
  }
  EXPECT_GT(found, 30);
}

TEST(ZeroRuns, AWholeTensorWithoutThemIsReadAtFewPlaces) {
  const StoredTensor tensor = matrix(1024, 4096);
  Elements elements(tensor);
  EXPECT_EQ(find_missing_part(tensor, elements.reader())->has_value(), false);
  EXPECT_EQ(elements.read(), tensor.elements / kMin);
  EXPECT_EQ(is_zero_matrix(tensor, elements.reader()).value_or(true), false);
  elements.clear(0, tensor.elements - 1);
  EXPECT_EQ(is_zero_matrix(tensor, elements.reader()).value_or(true), false);
  elements.clear(0, tensor.elements);
  EXPECT_EQ(is_zero_matrix(tensor, elements.reader()).value_or(false), true);
}

// A folder of a model whose embeddings are large enough to lose parts.
class UnfinishedDownload : public testing::Test {
 protected:
  static constexpr int64_t kVocabulary = 8192;

  void SetUp() override {
    std::filesystem::create_directory(path());
    nlohmann::json config =
        nlohmann::json::parse(std::ifstream(hugging_face_golden("mistral") + "/config.json"));
    config["vocab_size"] = kVocabulary;
    config["intermediate_size"] = kWide;
    config["tie_word_embeddings"] = false;
    std::ofstream(path() + "/config.json") << config;
    const auto read = read_hugging_face_config(path());
    ASSERT_TRUE(read.ok()) << read.status();
    tensors_ = hugging_face_tensors(read->model, model_params(read->model));
    for (const HuggingFaceTensor& tensor : tensors_) {
      auto& values = values_[tensor.name];
      values.resize(static_cast<size_t>(tensor.elements()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0F + static_cast<float>(i % 7);
    }
  }

  // Writes the weights and returns the error of a load, or the notes of a folder that loads.
  std::string load(StoredType stored = StoredType::kF32) {
    std::vector<TensorToWrite> out;
    std::vector<std::vector<char>> narrowed;
    for (const HuggingFaceTensor& tensor : tensors_) {
      const std::vector<float>& values = values_[tensor.name];
      narrowed.emplace_back(values.size() * stored_bytes(stored));
      narrow(values, stored, narrowed.back().data());
      out.push_back({tensor.name, tensor.shape, narrowed.back().data(), stored});
    }
    const std::string file = path() + "/model.safetensors";
    std::filesystem::remove(file);
    const auto written = write_safetensors(file, out);
    EXPECT_TRUE(written.ok()) << written.status();
    const auto source = open_hugging_face(path());
    if (!source.ok()) return std::string(source.status().message());
    std::vector<float> block(static_cast<size_t>((*source)->parameters()));
    const auto loaded = load_parameters(**source, block);
    std::string text(loaded.message());
    for (const std::string& note : (*source)->description().notes) text += note;
    return text;
  }
  void clear(const std::string& name, size_t begin, size_t end) {
    auto& values = values_.at(name);
    std::fill(values.begin() + static_cast<ptrdiff_t>(begin),
              values.begin() + static_cast<ptrdiff_t>(end), 0.0F);
  }
  size_t size(const std::string& name) { return values_.at(name).size(); }
  size_t width() { return size("model.norm.weight"); }
  std::string path() const { return folder_.path() + "/model"; }

  static constexpr int kWide = 8192;
  static constexpr char kEmbeddings[] = "model.embed_tokens.weight";
  static constexpr char kHead[] = "lm_head.weight";
  static constexpr char kDown[] = "model.layers.1.mlp.down_proj.weight";
  TempFolder folder_;
  std::vector<HuggingFaceTensor> tensors_;
  std::map<std::string, std::vector<float>> values_;
};

TEST_F(UnfinishedDownload, PartsThatDidNotArriveAreErrors) {
  EXPECT_THAT(load(), IsEmpty());
  const struct {
    const char* tensor;
    size_t begin, end;
  } missing[] = {{kHead, 90'008, size(kHead)},  // the end of the file
                 {kHead, 0, 40'008},            // a part before one that has arrived
                 {kEmbeddings, 5, 5 + kMin},    // a part in the middle
                 {kEmbeddings, 65'536, size(kEmbeddings) - 6},
                 {kDown, 4'099, size(kDown) - 1}};
  for (const auto& part : missing) {
    for (const StoredType stored : {StoredType::kF32, StoredType::kBf16, StoredType::kF16}) {
      const auto intact = values_;
      clear(part.tensor, part.begin, part.end);
      EXPECT_THAT(load(stored),
                  AllOf(HasSubstr(path() + "/model.safetensors: tensor " + part.tensor +
                                  " has only zeros from element " + std::to_string(part.begin) +
                                  " to " + std::to_string(part.end)),
                        HasSubstr("the file's download is unfinished; download it again")));
      values_ = intact;
    }
  }
}

TEST_F(UnfinishedDownload, ZerosOfCompleteModelsAreAccepted) {
  clear(kEmbeddings, size(kEmbeddings) - 2'048 * width(), size(kEmbeddings));  // unused rows
  clear(kHead, 64 * width() - 1, 4'000 * width() + 2);  // and values that are zero by chance
  for (size_t row = 0; row < width(); ++row)            // pruned columns
    clear(kDown, row * kWide + 100, row * kWide + 4'100);
  const std::string padded = "model.layers.0.mlp.down_proj.weight";
  for (size_t row = 0; row < width(); ++row)  // unused columns, and unused rows
    clear(padded, row * kWide + (row > 8 ? 0 : 6'000), (row + 1) * kWide);
  EXPECT_THAT(load(), IsEmpty());
}

TEST_F(UnfinishedDownload, MatricesOfZerosAreNoted) {
  clear(kDown, 0, size(kDown));
  clear(kHead, 0, size(kHead));
  EXPECT_THAT(load(),
              AllOf(HasSubstr("2 of "), HasSubstr("matrices contain only zeros: "),
                    HasSubstr(kDown), HasSubstr(kHead), HasSubstr("compare the files' checksums")));
}

}  // namespace
}  // namespace muster::trainer
