// Runs the tests of this program on the GPU, or on the emulated one. Exits with status 77 and a
// message if there is none: nothing was tested. The report (--gtest_output) names the device and
// the libraries that the process has found.
#include <dlfcn.h>
#include <link.h>

#include <array>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

#include "tests/gpu/both_backends.h"

namespace muster::trainer {
namespace {

constexpr int kNoGpu = 77;

std::string& gpu_name() {
  static std::string name;
  return name;
}

bool is_emulated() { return gpu_name() == "emulated GPU"; }

struct Library {
  const char* name;
  const char* file;     // without its version
  const char* version;  // the function that returns its version
};
constexpr std::array kLibraries = {Library{"cuBLASLt", "/libcublasLt.so", "cublasLtGetVersion"},
                                   Library{"cuDNN", "/libcudnn.so", "cudnnGetVersion"},
                                   Library{"NCCL", "/libnccl.so", "ncclGetVersion"}};

// Returns the path from which the process has opened the library; empty if it has not.
std::string path_of(const Library& library) {
  struct Search {
    const char* file;
    std::string path;
  } search{library.file, ""};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* argument) {
        auto* const wanted = static_cast<Search*>(argument);
        const std::string path = info->dlpi_name;
        if (path.find(wanted->file) == std::string::npos) return 0;
        wanted->path = path;
        return 1;
      },
      &search);
  return search.path;
}

// Returns, for example, "9.19.0, /usr/lib/…"; empty if the process has not opened the library.
std::string description_of(const Library& library) {
  const std::string path = path_of(library);
  void* const handle = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  void* const function = handle == nullptr ? nullptr : dlsym(handle, library.version);
  if (function == nullptr) return "";
  int version = 0;
  if (std::string(library.name) == "NCCL") {
    reinterpret_cast<int (*)(int*)>(function)(&version);
  } else {
    version = static_cast<int>(reinterpret_cast<size_t (*)()>(function)());
  }
  std::ostringstream text;
  text << version / 10'000 << '.' << version / 100 % 100 << '.' << version % 100 << ", " << path;
  return text.str();
}

// Adds the notes on what built-in kernels computed instead of a library, and why, to the report,
// after the last test.
class NotesAtTheEnd : public testing::Environment {
  void TearDown() override {
    std::string notes;
    for (const std::string& note : backends().gpu->take_notes()) notes += note + '\n';
    testing::Test::RecordProperty("notes", notes);
  }
};

}  // namespace

Backends& backends() {
  constexpr int kThreads = 2;
  static const auto device = gpu_backend({}).value();
  // Under a sanitizer only built-in kernels run: its findings on libraries' kernels are irrelevant
  // here.
  static const auto own =
      is_sanitized() ? cuda_ops({.algorithms_path = {}, .use_libraries = false}) : nullptr;
  static Backends both{cpu_ops(kThreads), *device, own != nullptr ? own.get() : &device->ops()};
  return both;
}

// Set by run.sh: everything takes many times longer.
bool is_sanitized() { return std::getenv("MUSTER_GPU_TESTS_SANITIZED") != nullptr; }
bool large_shapes() { return !is_emulated() && !is_sanitized(); }

int run(int argc, char** argv) {
  const auto device = find_cuda_device(0);
  if (!device.ok()) {
    std::cerr << "no GPU to test on: " << device.status().message() << std::endl;
    return kNoGpu;
  }
  gpu_name() = device->name;
  testing::InitGoogleTest(&argc, argv);
  std::ostringstream line;
  line << device->name << ", compute capability " << device->capability / 10 << '.'
       << device->capability % 10 << ", " << (device->memory_bytes >> 20)
       << " MiB; driver supports CUDA " << device->driver_version / 1000 << '.'
       << device->driver_version % 1000 / 10 << "; backend: " << backends().gpu->name();
  std::cout << "device: " << line.str() << std::endl;
  testing::Test::RecordProperty("device", line.str());
  // The backend has opened the other libraries.
  if (!is_emulated()) (void)dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  for (const Library& library : kLibraries)
    testing::Test::RecordProperty(library.name, description_of(library));
  testing::AddGlobalTestEnvironment(new NotesAtTheEnd);
  return RUN_ALL_TESTS();
}

}  // namespace muster::trainer

int main(int argc, char** argv) { return muster::trainer::run(argc, argv); }
