// Executes real files by the kernel: the message names what is missing, and the code states whether
// a retry can help.
#include "worker/shell/programs/exec_problem.h"

#include <elf.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::worker {
namespace {

using testing::HasSubstr;
using std::string_literals::operator""s;

struct ScriptCase {
  const char* name;
  std::string text;     // content of the program's file; "$F" is the test's folder
  const char* problem;  // a part of the message; "": it runs
  absl::StatusCode code = absl::StatusCode::kPermissionDenied;
};

const ScriptCase kScriptCases[] = {
    {"no interpreter line", "echo hi\n", "it has no interpreter line (#!); name its interpreter"},
    {"carriage return", "#!/bin/sh\r\necho hi\r\n",
     "its first line names the interpreter /bin/sh\\x0d: the line ends in a carriage return"},
    {"carriage return of an argument", "#!/usr/bin/env python3\r\nprint(1)\r\n",
     "interpreter /usr/bin/env python3\\x0d: the line ends in a carriage return"},
    {"carriage return of an option", "#!/bin/sh -e\r\necho hi\r\n", "carriage return"},
    {"missing interpreter", "#!/opt/no/python3 -u\nprint(1)\n",
     "its first line names the interpreter /opt/no/python3, which does not exist"},
    {"missing interpreter of the interpreter", "#!$F/wrapper\n",
     "wrapper cannot be executed: its first line names the interpreter /opt/no/sh"},
    {"empty file", "", "the file is empty"},
    {"no interpreter after #!", "#!\n", "names no interpreter"},
    {"byte order mark", "\xEF\xBB\xBF#!/bin/sh\necho hi\n", "a byte order mark stands before"},
    {"UTF-16", "\xFF\xFE#\0!\0/\0"s, "it is text in UTF-16"},
    {"another processor",
     "\x7F"
     "ELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xF3\0"s +
         std::string(100, '\0'),
     "it is a program for another processor"},
    {"interpreter that is not executable", "#!$F/plain\n", "plain is not executable"},
    {"interpreter that is a folder", "#!$F\necho\n", ", which is a folder"},
    {"data", "\x01\x02\0\x03"s, "it is no program of this system"},
    {"a script that runs", "#!/bin/sh\nexit 0\n", "", absl::StatusCode::kOk},
    {"a script with a blank before its interpreter", "#! /bin/sh -e\nexit 0\n", "",
     absl::StatusCode::kOk},
};

// Returns the errno of execve(), 0 if the program runs.
int error_of_exec(const std::string& path) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    char* arguments[] = {const_cast<char*>(path.c_str()), nullptr};
    char* environment[] = {nullptr};
    execve(path.c_str(), arguments, environment);
    const int error = errno;
    (void)!write(ends[1], &error, sizeof(error));
    _exit(0);
  }
  close(ends[1]);
  int error = 0;
  (void)!read(ends[0], &error, sizeof(error));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return error;
}

absl::Status exec_status_of(const std::string& path) {
  if (auto status = check_interpreter_line(path); !status.ok()) return status;
  const int error = error_of_exec(path);
  return error == 0 ? absl::OkStatus() : exec_problem(error, path);
}

void put_program(const std::string& path, const std::string& text) {
  write_file(path, text);
  ASSERT_EQ(chmod(path.c_str(), 0755), 0);
}

TEST(ExecProblem, NamesWhatPreventsIt) {
  const TempFolder folder;
  put_program(folder.file("wrapper"), "#!/opt/no/sh\n");
  write_file(folder.file("plain"), "#!/bin/sh\n");
  ASSERT_EQ(chmod(folder.file("plain").c_str(), 0644), 0);
  for (const ScriptCase& one : kScriptCases) {
    std::string text = one.text;
    if (const size_t at = text.find("$F"); at != std::string::npos)
      text.replace(at, 2, folder.path());
    put_program(folder.file("program"), text);
    const absl::Status status = exec_status_of(folder.file("program"));
    EXPECT_EQ(status.code(), one.code) << one.name << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.problem)) << one.name;
  }
}

template <class Header, class Segment>
std::string program_with_loader(unsigned char elf_class, const std::string& loader) {
  Header header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = elf_class;
  header.e_phoff = sizeof(header);
  header.e_phnum = 1;
  Segment segment{};
  segment.p_type = PT_INTERP;
  segment.p_offset = sizeof(header) + sizeof(segment);
  segment.p_filesz = static_cast<decltype(segment.p_filesz)>(loader.size() + 1);
  std::string file(segment.p_offset, '\0');
  std::memcpy(file.data(), &header, sizeof(header));
  std::memcpy(file.data() + sizeof(header), &segment, sizeof(segment));
  return file + loader + '\0';
}

// A kernel without support for 32-bit programs gives another error.
TEST(ExecProblem, NamesTheMissingLoaderOfA32BitProgram) {
  const TempFolder folder;
  const std::string path = folder.file("program");
  for (const std::string& text :
       {program_with_loader<Elf32_Ehdr, Elf32_Phdr>(ELFCLASS32, "/lib/ld-none.so.2"),
        program_with_loader<Elf64_Ehdr, Elf64_Phdr>(ELFCLASS64, "/lib/ld-none.so.2")}) {
    put_program(path, text);
    EXPECT_THAT(std::string(exec_problem(ENOENT, path).message()),
                HasSubstr("its dynamic loader /lib/ld-none.so.2 does not exist"));
    put_program(path, text.substr(0, 40));
    EXPECT_THAT(std::string(exec_problem(ENOENT, path).message()),
                HasSubstr("a part that it needs does not exist"));
  }
}

TEST(ExecProblem, AMissingProgramIsNotFound) {
  const TempFolder folder;
  const absl::Status status = exec_status_of(folder.file("none"));
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
}

TEST(ExecProblem, WhatMayPassIsNeitherMissingNorRefused) {
  for (const int error : {EAGAIN, ENOMEM, EMFILE, ENFILE, ETXTBSY, EIO}) {
    const absl::Status status = exec_problem(error, "/bin/sh");
    EXPECT_FALSE(absl::IsNotFound(status) || absl::IsPermissionDenied(status)) << status;
  }
  EXPECT_TRUE(absl::IsPermissionDenied(exec_problem(E2BIG, "/bin/sh")));
}

}  // namespace
}  // namespace muster::worker
