// Files of torch.save, and what pretends to be one: tests/golden/make_meta.py made them.
#include "trainer_core/checkpoint/foreign/torch_file.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/paths.h"
#include "tests/unit/mutate.h"
#include "tests/unit/temp_folder.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string golden(const std::string& name) {
  return source_dir() + "/tests/golden/meta/hostile/" + name;
}

std::string error_of(const std::string& name) {
  return std::string(TorchFile::open(golden(name)).status().message());
}

// The file at `path` with all that an open and every read of it may touch.
absl::Status read_all(const std::string& path) {
  const auto file = TorchFile::open(path);
  if (!file.ok()) return file.status();
  for (const auto& [name, tensor] : (*file)->tensors()) {
    if (tensor.stored == StoredType::kOther) continue;
    std::vector<float> numbers(tensor.elements);
    if (auto status = (*file)->read(tensor, 0, numbers); !status.ok()) return status;
  }
  return absl::OkStatus();
}

TEST(TorchFile, ReadsWhatTorchSaved) {
  const auto file = TorchFile::open(golden("good.pth"));
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->tensors().size(), 2U);
  const StoredTensor& a = (*file)->tensors().at("a");
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3}));
  std::vector<float> numbers(4);
  ASSERT_TRUE((*file)->read(a, 2, numbers).ok());
  EXPECT_EQ(numbers, (std::vector<float>{2, 3, 4, 5}));
  const StoredTensor& b = (*file)->tensors().at("b");
  EXPECT_EQ(b.stored, StoredType::kBf16);
  ASSERT_TRUE((*file)->read(b, 0, numbers).ok());
  EXPECT_EQ(numbers, (std::vector<float>{1, 1, 1, 1}));
}

TEST(TorchFile, ExecutesNoCode) {
  const std::pair<const char*, const char*> calls[] = {{"system.pth", "posix system"},
                                                       {"eval.pth", "__builtin__ eval"},
                                                       {"import.pth", "__builtin__ __import__"},
                                                       {"getattr.pth", "__builtin__ getattr"}};
  for (const auto& [name, function] : calls) {
    EXPECT_THAT(error_of(name), AllOf(HasSubstr(name), HasSubstr("data.pkl (from byte 46 on)"),
                                      HasSubstr(std::string("byte 25: it calls ") + function)));
  }
  EXPECT_FALSE(std::filesystem::exists("pwned"));
}

TEST(TorchFile, ErrorsNameDefectAndLocation) {
  EXPECT_THAT(error_of("legacy.pth"), HasSubstr("byte 0: this is torch.save's format of before"));
  EXPECT_THAT(error_of("compressed.pth"), HasSubstr("entry archive/data.pkl is compressed"));
  EXPECT_THAT(error_of("missing.pth"), HasSubstr("tensor b lies in archive/data/1, which is not"));
  EXPECT_THAT(error_of("short.pth"), HasSubstr("6 elements of 4 bytes, but the file has 23 bytes"));
  EXPECT_THAT(error_of("beyond.pth"), HasSubstr("tensor a has the shape [2, 9] in 6 elements"));
  EXPECT_THAT(error_of("transposed.pth"), HasSubstr("save it as tensor.contiguous()"));
  EXPECT_THAT(error_of("nested.pth"), HasSubstr("it holds no dictionary of tensors"));
  EXPECT_THAT(error_of("long.pth"), HasSubstr("a whole number has more than 64 bits"));
  EXPECT_THAT(error_of("text.pth"), HasSubstr("needs 4294967295 more bytes, and there are 4"));
  EXPECT_THAT(error_of("self.pth"), HasSubstr("values are left over"));
  EXPECT_TRUE(absl::IsNotFound(TorchFile::open(golden("none.pth")).status()));
}

// Each is a write to a disk: not every byte.
TEST(TorchFile, EveryTruncationIsAnError) {
  const TempFolder folder;
  const std::string bytes = read_file(golden("good.pth"));
  for (size_t size = 0; size < bytes.size(); size += 3) {
    write_file(folder.file("cut.pth"), bytes.substr(0, size));
    const absl::Status status = read_all(folder.file("cut.pth"));
    ASSERT_FALSE(status.ok()) << size;
    ASSERT_THAT(std::string(status.message()), AllOf(HasSubstr("cut.pth"), HasSubstr("byte ")));
  }
}

// Sizes and an offset that lie in a zip64 field and an end of its own, as in files of more than 4
// GB.
TEST(TorchFile, ReadsZip64) {
  const TempFolder folder;
  std::string bytes = read_file(golden("good.pth"));
  const auto put = [](std::string& text, uint64_t value, size_t count) {
    text.append(reinterpret_cast<const char*>(&value), std::min(count, sizeof(value)));
    text.append(count - std::min(count, sizeof(value)), '\0');
  };
  const size_t end = bytes.rfind("PK\5\6");
  uint32_t directory = 0, size = 0;
  uint16_t entries = 0;
  std::memcpy(&entries, bytes.data() + end + 10, 2);
  std::memcpy(&size, bytes.data() + end + 12, 4);
  std::memcpy(&directory, bytes.data() + end + 16, 4);
  std::string central;
  for (size_t at = directory; at < directory + size;) {
    uint16_t name = 0, extra = 0, comment = 0;
    std::memcpy(&name, bytes.data() + at + 28, 2);
    std::memcpy(&extra, bytes.data() + at + 30, 2);
    std::memcpy(&comment, bytes.data() + at + 32, 2);
    std::string header = bytes.substr(at, 46);
    std::string field("\1\0\x18\0", 4);
    uint32_t packed = 0, whole = 0, offset = 0;
    std::memcpy(&packed, header.data() + 20, 4);
    std::memcpy(&whole, header.data() + 24, 4);
    std::memcpy(&offset, header.data() + 42, 4);
    put(field, whole, 8);
    put(field, packed, 8);
    put(field, offset, 8);
    for (const size_t place : {20, 24, 42}) header.replace(place, 4, "\xff\xff\xff\xff");
    const auto length = static_cast<uint16_t>(field.size());
    std::memcpy(header.data() + 30, &length, 2);
    std::memset(header.data() + 32, 0, 2);
    central += header + bytes.substr(at + 46, name) + field;
    at += 46U + name + extra + comment;
  }
  const size_t central_at = directory;
  bytes.resize(central_at);
  bytes += central;
  const size_t zip64_end = bytes.size();
  bytes += std::string("PK\6\6", 4);
  put(bytes, 44, 8);
  put(bytes, 0, 12);
  put(bytes, entries, 8);
  put(bytes, entries, 8);
  put(bytes, central.size(), 8);
  put(bytes, central_at, 8);
  bytes += std::string("PK\6\7", 4);
  put(bytes, 0, 4);
  put(bytes, zip64_end, 8);
  put(bytes, 1, 4);
  bytes += std::string("PK\5\6", 4);
  put(bytes, 0, 4);
  bytes += std::string(12, '\xff');
  put(bytes, 0, 2);
  write_file(folder.file("large.pth"), bytes);
  const auto file = TorchFile::open(folder.file("large.pth"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->tensors().at("a").elements, 6U);
}

// Whatever the bytes: tensors, or an error that names the file and a byte.
TEST(TorchFile, SurvivesMutations) {
  const TempFolder folder;
  const std::string path = folder.file("mutated.pth");
  Mutator mutator(11);
  for (const auto& entry : std::filesystem::directory_iterator(golden(""))) {
    const std::string bytes = read_file(entry.path().string());
    for (int i = 0; i < 150; ++i) {
      write_file(path, mutator.mutate(bytes));
      const absl::Status status = read_all(path);
      if (status.ok()) continue;
      ASSERT_THAT(std::string(status.message()), AllOf(HasSubstr(path), HasSubstr("byte ")));
    }
  }
}

}  // namespace
}  // namespace muster::trainer
