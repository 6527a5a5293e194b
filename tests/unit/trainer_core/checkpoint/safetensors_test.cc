#include "trainer_core/checkpoint/safetensors.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/unit/mutate.h"
#include "tests/unit/temp_folder.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;

std::string file_with_header(const std::string& json, const std::string& data) {
  const uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + json + data;
}

absl::Status open_status(const TempFolder& folder, const std::string& bytes) {
  write_file(folder.file("x.safetensors"), bytes);
  return SafetensorsFile::open(folder.file("x.safetensors")).status();
}

TEST(Safetensors, RoundTrips) {
  TempFolder folder;
  std::vector<float> numbers(6);
  std::iota(numbers.begin(), numbers.end(), 0.5F);
  const auto written =
      write_safetensors(folder.file("a.safetensors"),
                        {{"b", {2, 2}, numbers.data()}, {"a", {2}, numbers.data() + 4}});
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->digest.bytes, std::filesystem::file_size(folder.file("a.safetensors")));
  EXPECT_EQ(written->data_begin % 8, 0U);
  auto file = SafetensorsFile::open(folder.file("a.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<float> b(4), a(2);
  EXPECT_EQ((*file)->tensors().at("b").shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ((*file)->tensors().at("b").offset, written->data_begin);
  ASSERT_TRUE((*file)->read((*file)->tensors().at("b"), b).ok());
  ASSERT_TRUE((*file)->read((*file)->tensors().at("a"), a).ok());
  EXPECT_EQ(b, (std::vector<float>{0.5F, 1.5F, 2.5F, 3.5F}));
  EXPECT_EQ(a, (std::vector<float>{4.5F, 5.5F}));
}

// Every 16-bit number is an fp32 number.
TEST(Safetensors, ReadsHalfPrecisionExactly) {
  const TempFolder folder;
  const std::pair<uint16_t, float> halves[] = {{0x3C00, 1.0F},
                                               {0xC000, -2.0F},
                                               {0x3555, 0.333251953125F},
                                               {0x0001, 0x1p-24F},
                                               {0x83FF, -0x1.FF8p-15F},
                                               {0x0400, 0x1p-14F},
                                               {0x7BFF, 65'504},
                                               {0x8000, -0.0F},
                                               {0x7C00, std::numeric_limits<float>::infinity()}};
  const std::pair<uint16_t, float> brains[] = {
      {0x3F80, 1.0F}, {0xC040, -3.0F}, {0x0001, 0x1p-133F}, {0x7F7F, 0x1.FEp127F}};
  const auto check = [&](const std::string& dtype,
                         std::span<const std::pair<uint16_t, float>> all) {
    std::string data;
    for (const auto& [bits, value] : all)
      data.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
    const std::string json =
        absl::StrCat(R"({"t": {"dtype": ")", dtype, R"(", "shape": [)", all.size(),
                     R"(], "data_offsets": [0, )", data.size(), "]}}");
    ASSERT_TRUE(open_status(folder, file_with_header(json, data)).ok());
    const auto file = SafetensorsFile::open(folder.file("x.safetensors"));
    ASSERT_TRUE(file.ok()) << file.status();
    std::vector<float> values(all.size());
    ASSERT_TRUE((*file)->read((*file)->tensors().at("t"), values).ok());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(values[i], all[i].second) << dtype << ' ' << all[i].first;
      EXPECT_EQ(std::signbit(values[i]), std::signbit(all[i].second));
    }
  };
  check("F16", halves);
  check("BF16", brains);
}

TEST(Safetensors, HostileHeadersAreErrors) {
  TempFolder folder;
  const std::string data(16, 'x');
  EXPECT_EQ(open_status(folder, "").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(open_status(folder, "1234567").code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(open_status(folder, std::string(8, '\xFF')).message()),
              HasSubstr("header's length"));
  for (const char* json : {
           "not json",
           "[]",
           "{\"t\": 1}",
           "{\"t\": {}}",
           R"({"t": {"dtype": "F23", "shape": [1], "data_offsets": [0, 4]}})",
           R"({"t": {"dtype": "F16", "shape": [1], "data_offsets": [0, 4]}})",
           R"({"t": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})",
           R"({"t": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 4]}})",
           R"({"t": {"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]}})",
           R"({"t": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}})",
           R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}})",
           R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}})",
           R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [16, 20]}})",
           R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}})",
           R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0]}})",
           R"({"t": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 0]}})",
           R"({"t": {"dtype": "F32", "shape": [18446744073709551615, 2], "data_offsets": [0, 8]}})",
           R"({"t": {"dtype": "F32", "shape": [1,1,1,1,1,1,1,1,1], "data_offsets": [0, 4]}})",
       }) {
    EXPECT_EQ(open_status(folder, file_with_header(json, data)).code(), absl::StatusCode::kDataLoss)
        << json;
  }
  EXPECT_EQ(open_status(folder, file_with_header(std::string(1'000'000, '['), "")).code(),
            absl::StatusCode::kDataLoss);
}

// Tensors cover the data, each byte once.
TEST(Safetensors, TensorsAreContiguous) {
  TempFolder folder;
  const auto two = [](int begin_a, int begin_b) {
    const auto entry = [](int begin) {
      return absl::StrCat(R"({"dtype": "F32", "shape": [2], "data_offsets": [)", begin, ", ",
                          begin + 8, "]}");
    };
    return absl::StrCat(R"({"a": )", entry(begin_a), R"(, "b": )", entry(begin_b), "}");
  };
  const std::string data(16, 'x');
  const auto error = [&](const std::string& json, const std::string& bytes) {
    const absl::Status status = open_status(folder, file_with_header(json, bytes));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << json;
    return std::string(status.message());
  };
  EXPECT_TRUE(open_status(folder, file_with_header(two(8, 0), data)).ok());
  const size_t start = 8 + two(0, 8).size();
  EXPECT_THAT(error(two(0, 4), data + "xxxx"),
              HasSubstr(absl::StrCat("tensor b begins at byte ", start + 4,
                                     " of the file, but a ends at byte ", start + 8)));
  EXPECT_THAT(error(two(0, 0), data), HasSubstr("tensor b begins at byte"));
  EXPECT_THAT(error(two(4, 12), data + "xxxx"), HasSubstr("but the header ends at byte"));
  EXPECT_THAT(error(two(0, 8), data + "spare"),
              HasSubstr("but b, which is the last in it, ends at byte"));
}

// The kernel would end the process.
TEST(Safetensors, AFileThatIsCutOffWhileItIsReadIsAnError) {
  TempFolder folder;
  const std::vector<float> numbers(1 << 16, 1.0F);
  const std::string path = folder.file("a.safetensors");
  ASSERT_TRUE(write_safetensors(path, {{"a", {1 << 16}, numbers.data()}}).ok());
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  std::filesystem::resize_file(path, 4096);
  std::vector<float> read(numbers.size());
  const absl::Status status = (*file)->read((*file)->tensors().at("a"), read);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path + " was cut off while it was read"));
}

TEST(Safetensors, DamageNeverCrashes) {
  TempFolder folder;
  const std::vector<float> numbers(6, 1.0F);
  ASSERT_TRUE(write_safetensors(folder.file("a.safetensors"),
                                {{"b", {2, 2}, numbers.data()}, {"a", {2}, numbers.data()}})
                  .ok());
  const std::string good = read_file(folder.file("a.safetensors"));
  for (size_t i = 0; i < good.size(); ++i) {
    EXPECT_FALSE(open_status(folder, good.substr(0, i)).ok()) << "truncated to " << i;
    for (const char flip : {'\x01', '\x10', '\x80'}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      (void)open_status(folder, bad);
    }
  }
}

// Accepted files can be read: the sanitizer build checks every access.
TEST(Safetensors, MutatedFilesAreRefusedOrRead) {
  TempFolder folder;
  const std::vector<float> numbers(6, 1.0F);
  ASSERT_TRUE(write_safetensors(folder.file("a.safetensors"),
                                {{"b", {2, 2}, numbers.data()}, {"a", {2}, numbers.data()}})
                  .ok());
  const std::string good = read_file(folder.file("a.safetensors"));
  Mutator mutator(1);
  int read = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bad = mutator.mutate(good);
    // Half of them keep a header's length that is right, so that its JSON is seen.
    const uint64_t length = bad.find("}}") + 2 - 8;
    if (i % 2 == 0 && length < bad.size()) std::memcpy(bad.data(), &length, sizeof(length));
    write_file(folder.file("x.safetensors"), bad);
    const auto file = SafetensorsFile::open(folder.file("x.safetensors"));
    if (!file.ok()) {
      ASSERT_EQ(file.status().code(), absl::StatusCode::kDataLoss) << file.status();
      continue;
    }
    for (const auto& [name, entry] : (*file)->tensors()) {
      ASSERT_LE(entry.elements * sizeof(float), bad.size());
      std::vector<float> out(entry.elements);
      ASSERT_TRUE((*file)->read(entry, out).ok());
    }
    ++read;
  }
  EXPECT_GT(read, 50);
}

}  // namespace
}  // namespace muster::trainer
