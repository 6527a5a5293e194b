// Runs the tests of this program on the GPU, or on the emulated one. Exit status 77, with a sentence, where there is none: nothing was tested.
#include <cstdlib>
#include <iostream>
#include <string>

#include "tests/gpu/both_backends.h"

namespace muster::trainer {
namespace {

constexpr int kNoGpu = 77;

std::string& gpu_name() {
  static std::string name;
  return name;
}

}  // namespace

Backends& backends() {
  constexpr int kThreads = 2;
  static const auto device = gpu_backend({}).value();
  static Backends both{cpu_ops(kThreads), *device, &device->ops()};
  return both;
}

bool large_shapes() {
  return gpu_name() != "emulated GPU" && std::getenv("MUSTER_GPU_TESTS_SMALL") == nullptr;
}

int run(int argc, char** argv) {
  const auto device = find_cuda_device(0);
  if (!device.ok()) {
    std::cerr << "no GPU to test on: " << device.status().message() << std::endl;
    return kNoGpu;
  }
  gpu_name() = device->name;
  testing::InitGoogleTest(&argc, argv);
  std::cout << "device: " << device->name << ", compute capability " << device->capability / 10
            << '.' << device->capability % 10 << ", " << (device->memory_bytes >> 20)
            << " MiB; driver knows CUDA " << device->driver_version / 1000 << '.'
            << device->driver_version % 1000 / 10 << "; backend: " << backends().gpu->name()
            << std::endl;
  return RUN_ALL_TESTS();
}

}  // namespace muster::trainer

int main(int argc, char** argv) { return muster::trainer::run(argc, argv); }
