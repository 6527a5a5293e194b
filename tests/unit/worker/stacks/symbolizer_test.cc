#include "worker/stacks/symbolizer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "tests/unit/mutate.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/worker/stacks/subject.h"
#include "worker/stacks/demangle.h"
#include "worker/stacks/module_file.h"
#include "worker/stacks/proc_files.h"
#include "worker/stacks/process_map.h"

namespace muster::worker {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// Provides the addresses of the subject's functions, from a sample of it.
class SymbolizerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Subject subject("nested");
    StackSampler sampler;
    const StackSample sample = sample_one(sampler, subject.pid());
    for (const StackFrame& frame : sample.ranks.at(0).threads.at(0).frames) {
      if (frame.module == kNoModule || sample.modules.at(frame.module).path != subject_program())
        continue;
      module = sample.modules[frame.module];
      addresses.push_back(frame.address);
    }
  }

  std::vector<std::string> functions(const absl::StatusOr<std::vector<FrameSymbol>>& symbols) {
    std::vector<std::string> names;
    if (!symbols.ok()) return {std::string(symbols.status().message())};
    for (const FrameSymbol& symbol : *symbols) names.push_back(symbol.function);
    return names;
  }

  const std::vector<std::string> expected = {"_start",
                                             "main",
                                             "subject::outermost()",
                                             "subject::middle()",
                                             "subject::innermost()",
                                             "subject::wait_forever()"};
  StackModule module;
  std::vector<uint64_t> addresses;
  Symbolizer symbolizer;
};

TEST_F(SymbolizerTest, NamesWithoutTheProcess) {
  const auto symbols = symbolizer.symbolize(module, addresses, 0, in_seconds(30));
  EXPECT_EQ(functions(symbols), expected);
  EXPECT_THAT(symbols->at(3).file, EndsWith("tests/unit/worker/stacks/subject.cc"));
  EXPECT_EQ(symbols->at(3).line, subject_line("middle"));
}

TEST_F(SymbolizerTest, TheKernelsOwnCodeHasNames) {
  const auto map = read_process_map("/proc", getpid());
  const auto vdso = std::ranges::find(map->modules, "[vdso]", &MappedModule::path);
  if (vdso == map->modules.end()) GTEST_SKIP() << "this kernel has no vdso";
  const auto headers = read_module_headers(getpid(), *vdso);
  ASSERT_TRUE(headers.has_value());
  std::vector<uint64_t> all;
  for (uint64_t address = 0; address < vdso->end - vdso->start; address += 16)
    all.push_back(address);
  const StackModule kernel{.build_id = headers->build_id, .path = "[vdso]"};
  const auto names = functions(symbolizer.symbolize(kernel, all, 0, in_seconds(30)));
  EXPECT_THAT(names, ::testing::Contains(HasSubstr("clock_gettime")));
}

TEST_F(SymbolizerTest, UnknownAddressesStayUnnamed) {
  const std::vector<uint64_t> nowhere = {0, 1, ~uint64_t{0}, uint64_t{1} << 40};
  const auto symbols = symbolizer.symbolize(module, nowhere, 0, in_seconds(30));
  ASSERT_TRUE(symbols.ok()) << symbols.status();
  for (const FrameSymbol& symbol : *symbols) EXPECT_EQ(symbol, FrameSymbol{});
}

TEST_F(SymbolizerTest, ADeadlineCutsOff) {
  const auto symbols = symbolizer.symbolize(module, addresses, 0, monotonic_now());
  ASSERT_TRUE(symbols.ok());
  EXPECT_EQ(*symbols, std::vector<FrameSymbol>(addresses.size()));
}

TEST_F(SymbolizerTest, AnotherBuildIsRefused) {
  StackModule other = module;
  other.build_id = std::string(40, 'a');
  const auto refused = symbolizer.symbolize(other, addresses, 0, in_seconds(30));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(refused.status().message(), HasSubstr("was replaced"));
  other.path = "/nowhere/\x1b[31mlib.so";
  const auto missing = symbolizer.symbolize(other, addresses, 0, in_seconds(30));
  EXPECT_EQ(missing.status().message(), "no file /nowhere/\\x1b[31mlib.so");
}

// As in distributions and release builds: the program is stripped, and symbols are in a separate
// file.
TEST_F(SymbolizerTest, SeparateDebugFiles) {
  const TempFolder folder;
  StackModule split = module;
  split.path = folder.file("split");
  std::filesystem::copy_file(subject_program("stack_subject_split"), split.path);
  EXPECT_NE(functions(symbolizer.symbolize(split, addresses, 0, in_seconds(30))), expected);

  // Found by the name in the program's debug link, beside it.
  const std::string debug = folder.file("stack_subject.debug");
  std::filesystem::copy_file(subject_program("stack_subject.debug"), debug);
  Symbolizer beside;
  const auto symbols = beside.symbolize(split, addresses, 0, in_seconds(30));
  EXPECT_EQ(functions(symbols), expected);
  EXPECT_EQ(symbols->at(3).line, subject_line("middle"));

  // Found by build id, even if the program itself is gone.
  const std::string by_id = folder.file("debug") + "/.build-id/" + module.build_id.substr(0, 2);
  std::filesystem::create_directories(by_id);
  std::filesystem::rename(debug, by_id + "/" + module.build_id.substr(2) + ".debug");
  Symbolizer other({.debug_folder = folder.file("debug")});
  EXPECT_EQ(functions(other.symbolize(split, addresses, 0, in_seconds(30))), expected);
  std::filesystem::remove(split.path);
  Symbolizer again({.debug_folder = folder.file("debug")});
  EXPECT_EQ(functions(again.symbolize(split, addresses, 0, in_seconds(30))), expected);
}

// A process may name any file. Files of other users, and what was read of them, stay private.
TEST_F(SymbolizerTest, FilesAreOpenedWithTheRightsOfTheProcessesUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const TempFolder folder;
  ASSERT_EQ(chmod(folder.path().c_str(), 0711), 0);
  StackModule secret = module;
  secret.path = folder.file("secret");
  std::filesystem::copy_file(subject_program(), secret.path);
  ASSERT_EQ(chmod(secret.path.c_str(), 0700), 0);
  const UserIds user{.uid = 47'777, .gid = 47'777, .groups = {47'777}};
  EXPECT_EQ(functions(symbolizer.symbolize(secret, addresses, 0, in_seconds(30))), expected);
  const auto refused = symbolizer.symbolize(secret, addresses, 0, in_seconds(30), user);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kNotFound) << refused.status();
  ASSERT_EQ(chmod(secret.path.c_str(), 0755), 0);
  EXPECT_EQ(functions(symbolizer.symbolize(secret, addresses, 0, in_seconds(30), user)), expected);
}

TEST(ModuleFileTest, AFileOfAnotherDeviceIsNotTheMappedOne) {
  const TempFolder folder;
  const std::string path = folder.file("module");
  write_file(path, "no ELF file, and without a build id");
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  MappedModule module{.device = uint64_t{major(info.st_dev)} << 32 | minor(info.st_dev),
                      .inode = info.st_ino,
                      .path = path};
  const int fd = open_module_file("/proc", getpid(), module, "", std::nullopt);
  EXPECT_GE(fd, 0);
  close(fd);
  ++module.device;
  EXPECT_EQ(open_module_file("/proc", getpid(), module, "", std::nullopt), -1);
}

TEST(ModuleFileTest, ARemovedFileOfAnotherUsersProcessIsNotRead) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const TempFolder folder;
  const std::string path = folder.file("module");
  write_file(path, std::string(4096, 'x'));
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* const bytes = mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
  struct stat info {};
  ASSERT_EQ(fstat(fd, &info), 0);
  close(fd);
  ASSERT_NE(bytes, MAP_FAILED);
  std::filesystem::remove(path);
  const auto map = read_process_map("/proc", getpid());
  ASSERT_TRUE(map.has_value());
  const auto module = std::ranges::find(map->modules, info.st_ino, &MappedModule::inode);
  ASSERT_NE(module, map->modules.end());
  const int own = open_module_file("/proc", getpid(), *module, "", std::nullopt);
  if (own < 0) GTEST_SKIP() << "this container permits no map_files: errno " << errno;
  close(own);
  const UserIds user{.uid = 47'777, .gid = 47'777, .groups = {47'777}};
  EXPECT_EQ(open_module_file("/proc", getpid(), *module, "", user), -1);
  munmap(bytes, 4096);
}

TEST(UserOfRankTest, WithoutAProcessAndAFolderItHasNoRights) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const TempFolder folder;
  const std::string none = folder.file("none");
  EXPECT_EQ(user_of_rank(none, "/proc", 0, /*has_users=*/false), std::nullopt);
  const auto user = user_of_rank(none, "/proc", 0, /*has_users=*/true);
  EXPECT_EQ(user, (UserIds{.uid = kNobody, .gid = kNobody, .groups = {kNobody}}));
  EXPECT_EQ(user_of_rank(folder.path(), "/proc", 0, /*has_users=*/true), std::nullopt)
      << "a job of root";
}

TEST(ModuleFileTest, AHugeDebugFileIsNotRead) {
  const TempFolder folder;
  write_file(folder.file("debug"), "");
  std::filesystem::resize_file(folder.file("debug"), kDebugFileBytesMax + 1);
  const DebugLink link{
      .path = folder.file("program"), .build_id = "", .name = "debug", .crc = 0x193838c3};
  EXPECT_EQ(open_debug_file(folder.path(), link, std::nullopt), -1);
}

TEST_F(SymbolizerTest, InlinedFunctionsAreNamed) {
  const Subject subject("nested", subject_program("stack_subject_inlined"));
  StackSampler sampler;
  const StackSample sample = sample_one(sampler, subject.pid());
  const auto names = functions_of(sample, sample.ranks.at(0).threads.at(0), subject.pid());
  EXPECT_THAT(names, ::testing::Contains("subject::middle() inlined in subject::outermost()"));
}

// A name is arbitrary text from the file.
TEST_F(SymbolizerTest, NamesWithControlCharactersArePrintable) {
  const TempFolder folder;
  std::string bytes = read_file(subject_program());
  const std::string name = "_ZN7subject6middleEv";
  std::string evil = "evil\x1b[31m\n\x07";
  evil.resize(name.size(), '\x7f');
  size_t replaced = 0;
  for (size_t at = bytes.find(name); at != std::string::npos; at = bytes.find(name, at)) {
    bytes.replace(at, name.size(), evil);
    ++replaced;
  }
  ASSERT_GT(replaced, 0);
  StackModule other = module;
  other.path = folder.file("subject");
  write_file(other.path, bytes);
  const auto names = functions(symbolizer.symbolize(other, addresses, 0, in_seconds(30)));
  EXPECT_THAT(names, ::testing::Contains(::testing::StartsWith("evil\\x1b[31m\\x0a\\x07")));
  for (const std::string& shown : names) {
    EXPECT_TRUE(std::ranges::all_of(shown, [](char c) { return c >= ' ' && c != '\x7f'; }))
        << shown;
  }
}

// Files may be damaged or wrong: symbols may be missing or wrong, nothing else.
TEST_F(SymbolizerTest, DamagedFilesAreHarmless) {
  const TempFolder folder;
  const std::string whole = read_file(subject_program());
  StackModule damaged{.build_id = "", .path = folder.file("damaged")};
  Mutator mutator(1);
  for (int i = 0; i < 50; ++i) {
    write_file(damaged.path, mutator.mutate(whole));
    Symbolizer fresh;
    const auto symbols = fresh.symbolize(damaged, addresses, 0, in_seconds(30));
    if (!symbols.ok()) continue;
    for (const FrameSymbol& symbol : *symbols) {
      EXPECT_LE(symbol.function.size(), kFrameTextBytesMax);
      EXPECT_LE(symbol.file.size(), kFrameTextBytesMax);
    }
  }
}

TEST(DemangleTest, NamesAreReadableAndBounded) {
  EXPECT_EQ(demangled("_ZN6muster7trainer3runEv", 100), "muster::trainer::run()");
  EXPECT_EQ(demangled("clock_nanosleep", 100), "clock_nanosleep");
  EXPECT_EQ(demangled("_Zbroken", 100), "_Zbroken");
  EXPECT_EQ(demangled("evil\x1b[2J\n", 100), "evil\\x1b[2J\\x0a");
  const std::string cut = demangled(std::string(5000, 'x').c_str(), 100);
  EXPECT_EQ(cut.size(), 100);
  EXPECT_THAT(cut, EndsWith("x…"));
  // A name of pairs of itself: 2^60 words if expanded.
  std::string bomb = "_Z1fSt4pairIiiE";
  for (int i = 0; i < 60; ++i)
    bomb += "St4pairIS" + std::string(i == 0 ? "" : std::to_string(i % 10)) + "_S_E";
  EXPECT_LE(demangled(bomb.c_str(), 512).size(), 512);
}

TEST(DemangleTest, CutsAtCharacters) {
  for (size_t bytes = 4; bytes < 20; ++bytes) {
    const std::string text = bounded_text("ääääääääää", bytes);
    EXPECT_LE(text.size(), std::max<size_t>(bytes, 3));
    EXPECT_EQ(text.find("\xC3…"), std::string::npos);
  }
}

}  // namespace
}  // namespace muster::worker
