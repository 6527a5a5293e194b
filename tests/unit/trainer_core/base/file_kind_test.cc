#include "trainer_core/base/file_kind.h"

#include <gmock/gmock.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string problem_of(const std::string& bytes) {
  return foreign_file_problem(bytes.substr(0, kFileKindBytes), bytes.size());
}

TEST(FileKind, PointersOfEveryVersion) {
  const std::string rest = "\noid sha256:4d7a2146\nsize 3023\n";
  for (const char* version :
       {"version https://git-lfs.github.com/spec/v1", "version https://git-lfs.github.com/spec/v2",
        "version https://hawser.github.com/spec/v1", "version http://git-media.io/v/2"})
    EXPECT_THAT(problem_of(version + rest), HasSubstr("this is a Git LFS pointer: run git lfs"));
  // Extensions come before the object's id.
  EXPECT_THAT(problem_of("version https://git-lfs.github.com/spec/v1\next-0-x sha256:12" + rest),
              HasSubstr("Git LFS"));
  EXPECT_THAT(problem_of("/annex/objects/MD5E-s3--ab.txt\n"), HasSubstr("git annex get"));
  // A text about pointers is none, and neither is a long file that begins like one.
  EXPECT_EQ(problem_of("version https://git-lfs.github.com/spec/v1\nis the first line"), "");
  EXPECT_EQ(
      problem_of("version https://git-lfs.github.com/spec/v1" + rest + std::string(2000, 'x')), "");
}

// Editors, shells and Git on Windows change the small texts that pointers are.
TEST(FileKind, PointersThatAnEditorHasChanged) {
  const std::string lfs =
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 3023\n";
  std::string wide = "\xFF\xFE";
  for (const char c : lfs) wide += {c, '\0'};
  std::string wide_be = "\xFE\xFF";
  for (const char c : lfs) wide_be += {'\0', c};
  std::string crlf;
  for (const char c : lfs) crlf += c == '\n' ? std::string("\r\n") : std::string(1, c);
  for (const std::string& bytes : {"\xEF\xBB\xBF" + lfs, "\xEF\xBB\xBF\xEF\xBB\xBF" + crlf, crlf,
                                   "\n\n  " + lfs, lfs.substr(0, lfs.size() - 1), wide, wide_be}) {
    EXPECT_THAT(problem_of(bytes), HasSubstr("this is a Git LFS pointer")) << bytes;
    EXPECT_FALSE(check_no_pointer("x.txt", bytes, bytes.size()).ok()) << bytes;
  }
  EXPECT_THAT(problem_of("\xEF\xBB\xBF/annex/objects/MD5E-s3--ab.txt\r\n"), HasSubstr("git annex"));
  EXPECT_THAT(problem_of("# xet version 0\nfilesize = 12\nhash = 'ab'\n"),
              HasSubstr("this is a pointer of git-xet"));
  EXPECT_EQ(problem_of("see: " + lfs), "");
  EXPECT_TRUE(check_no_pointer("x.txt", "", 0).ok());
}

TEST(FileKind, FormatsOfOtherPrograms) {
  for (const auto& [bytes, expected] : {std::pair<std::string, const char*>{"GGUF\3", "GGUF"},
                                        {"PK\3\4", "PyTorch's .bin"},
                                        {"\x80\2}q", "a pickle"},
                                        {"\x80\3}q", "a pickle"},
                                        {"\x80\4}q", "a pickle"},
                                        {"\x80\5}q", "a pickle"},
                                        {"\x89HDF\r\n\x1A\n", "HDF5"},
                                        {"\x93NUMPY\1", "NumPy"},
                                        {"\n <!DOCTYPE HTML>", "a web page"},
                                        {"<?xml version=\"1.0\"?><Error>", "a web page"},
                                        {"\x1F\x8B\x08", "gzip"},
                                        {std::string(100, '\0'), "zeros only"},
                                        {"", "this file is empty"}})
    EXPECT_THAT(problem_of(bytes), HasSubstr(expected));
  EXPECT_EQ(problem_of("{\"model\": 1}"), "");
  EXPECT_EQ(problem_of("some text"), "");
}

// The length of a safetensors header may begin with any two bytes.
TEST(FileKind, LengthsOfHeadersAreNoFormats) {
  for (const std::string begins :
       {"\x80\x02", "\x80\x04", "\x80\x05", "\x1F\x8B", "PK\3\4", "BZh9"}) {
    std::string bytes = begins;
    bytes.resize(8, '\0');
    EXPECT_EQ(problem_of(bytes + "{\"a\": {}}"), "");
  }
}

TEST(FileKind, OpenFailuresNameLinksAndDownloads) {
  const TempFolder folder;
  const auto failure = [&](const std::string& name, int error = ENOENT) {
    return std::string(open_failure(error, folder.file(name)).message());
  };
  EXPECT_EQ(failure("none"), "cannot open " + folder.file("none") + ": No such file or directory");
  EXPECT_THAT(failure("none", EACCES), HasSubstr("Permission denied"));
  fs::create_symlink("target", folder.file("link"));
  EXPECT_THAT(failure("link"), HasSubstr("a symbolic link to target, which does not exist"));
  write_file(folder.file("target.incomplete"), "");
  EXPECT_THAT(failure("link"),
              HasSubstr("its download stopped (" + folder.file("target.incomplete")));
  EXPECT_THAT(failure("target"), HasSubstr("its download stopped ("));
  for (const char* name : {"a.incomplete", "b.PART", "c.aria2", "d.crdownload", "e.txt.download"})
    EXPECT_TRUE(is_unfinished_download(name)) << name;
  EXPECT_FALSE(is_unfinished_download("part"));
}

}  // namespace
}  // namespace muster::trainer
