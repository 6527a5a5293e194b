#include "trainer_core/startup/deep_check.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <string_view>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/files/errno_status.h"
#include "common/time/time.h"
#include "trainer_core/base/bf16.h"

namespace muster::trainer {
namespace {

// The values of the matrices repeat with this period along rows and columns, so the result has
// kPeriod^2 different elements, which the host computes.
constexpr int64_t kPeriod = 31;
// GPUs need large matrices for their full rate; a core needs milliseconds for the small ones.
constexpr int64_t kHostSide = 512;
constexpr int64_t kDeviceSide = 8192;
// Larger than the caches of most CPUs, and small beside any memory.
constexpr size_t kTestedCopyBytes = size_t{96} << 20;
// The part of a GPU's free memory that is filled, and the bytes per second of the measurement.
constexpr size_t kFilledShare = 2;
constexpr double kFilledBytesPerSecond = 8.0 * (size_t{1} << 30);
// A batch is long enough to time, and short enough that many of them are verified.
constexpr double kBatchShare = 0.2;
constexpr int kBatchMax = 4096;

int whole_value(int64_t row, int64_t column, int64_t by) {
  return static_cast<int>((row * 7 + column * by) % kPeriod) - static_cast<int>(kPeriod / 2);
}

// A GEMM C (side, side) = A B of integers in [-15, 15]. bf16 and fp32 represent them exactly, and
// each sum of products is below 2^24.
class ExactGemm {
 public:
  ExactGemm(Backend& backend, DType dtype, int64_t side)
      : backend_(backend),
        dtype_(dtype),
        side_(side),
        bytes_(static_cast<size_t>(side * side) * dtype_bytes(dtype)),
        room_(backend.memory().allocate(3 * bytes_)),
        host_(bytes_) {
    fill(0, 13);
    fill(1, 11);
    for (int64_t i = 0; i < kPeriod; ++i) {
      for (int64_t j = 0; j < kPeriod; ++j) {
        int64_t sum = 0;
        for (int64_t k = 0; k < side_; ++k)
          sum += int64_t{whole_value(i, k, 13)} * whole_value(k, j, 11);
        const auto exact = static_cast<float>(sum);
        expected_[static_cast<size_t>(i * kPeriod + j)] =
            dtype_ == DType::kBf16 ? Bf16::round(exact).value() : exact;
      }
    }
  }

  double flops() const { return 2.0 * std::pow(static_cast<double>(side_), 3); }

  // Computes `times` GEMMs and returns the seconds.
  double run(int times) {
    Ops& ops = backend_.ops();
    ops.synchronize();
    const Instant began = monotonic_now();
    for (int i = 0; i < times; ++i)
      ops.matmul(matrix(0), Transpose::kNo, matrix(1), Transpose::kNo, matrix(2), Accumulate::kNo);
    ops.synchronize();
    return to_seconds(monotonic_now() - began);
  }

  absl::Status verify() {
    backend_.ops().synchronize();
    backend_.memory().download(matrix(2).data, host_.data(), bytes_);
    int64_t wrong = 0;
    for (int64_t i = 0; i < side_; ++i) {
      const float* row = &expected_[static_cast<size_t>(i % kPeriod * kPeriod)];
      for (int64_t j = 0; j < side_; ++j) wrong += element(i * side_ + j) != row[j % kPeriod];
    }
    if (wrong == 0) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrFormat("%d of %d elements of a GEMM are wrong", wrong, side_ * side_));
  }

 private:
  Tensor matrix(size_t i) const {
    return Tensor::of(dtype_, static_cast<char*>(room_.get()) + i * bytes_, {side_, side_});
  }
  float element(int64_t i) const {
    if (dtype_ == DType::kBf16) {
      Bf16 value{};
      std::memcpy(&value, &host_[static_cast<size_t>(i) * sizeof(value)], sizeof(value));
      return value.value();
    }
    float value = 0;
    std::memcpy(&value, &host_[static_cast<size_t>(i) * sizeof(value)], sizeof(value));
    return value;
  }
  void fill(size_t which, int64_t by) {
    for (int64_t i = 0; i < side_; ++i) {
      for (int64_t j = 0; j < side_; ++j) {
        const auto value = static_cast<float>(whole_value(i, j, by));
        const auto index = static_cast<size_t>(i * side_ + j);
        if (dtype_ == DType::kBf16) {
          const Bf16 narrow = Bf16::round(value);
          std::memcpy(&host_[index * sizeof(narrow)], &narrow, sizeof(narrow));
        } else {
          std::memcpy(&host_[index * sizeof(value)], &value, sizeof(value));
        }
      }
    }
    backend_.memory().upload(host_.data(), matrix(which).data, bytes_);
  }

  Backend& backend_;
  const DType dtype_;
  const int64_t side_;
  const size_t bytes_;
  const std::shared_ptr<void> room_;
  std::vector<char> host_;
  std::array<float, static_cast<size_t>(kPeriod* kPeriod)> expected_{};
};

absl::Status test_gemm(Backend& backend, DType dtype, const char* name, double seconds,
                       DeepMeasurements& measured) {
  const bool is_host = backend.memory().is_host();
  ExactGemm gemm(backend, dtype, is_host ? kHostSide : kDeviceSide);
  gemm.run(1);  // chooses kernels
  if (auto status = gemm.verify(); !status.ok()) return status;
  const double once = std::max(gemm.run(1), 1e-9);
  const int batch = std::clamp(static_cast<int>(seconds * kBatchShare / once), 1, kBatchMax);
  std::vector<double> rates;
  const Instant began = monotonic_now();
  do {
    rates.push_back(batch * gemm.flops() / gemm.run(batch) * 1e-12);
    if (auto status = gemm.verify(); !status.ok()) return status;
  } while (to_seconds(monotonic_now() - began) < seconds);
  measured.push_back({name, median_of_measured(std::move(rates)), "TFLOP/s"});
  return absl::OkStatus();
}

// Returns a test word that differs between adjacent words.
uint64_t pattern_word(size_t i) { return (i + 1) * 0x9E3779B97F4A7C15ULL; }

std::vector<uint64_t> pattern_of(size_t bytes) {
  std::vector<uint64_t> words(bytes / sizeof(uint64_t));
  for (size_t i = 0; i < words.size(); ++i) words[i] = pattern_word(i);
  return words;
}

Tensor word_tensor(void* data, size_t bytes) {
  return Tensor::f32(static_cast<float*>(data), {static_cast<int64_t>(bytes / sizeof(float))});
}

// Fills a part of a GPU's memory with the pattern at `source`, and reads it back.
absl::Status test_filled(Backend& backend, const Tensor& source, std::span<const uint64_t> pattern,
                         double seconds) {
  const DeviceMemory& memory = backend.memory();
  const size_t bytes = std::min(backend.free_bytes() / kFilledShare,
                                static_cast<size_t>(seconds * kFilledBytesPerSecond));
  std::vector<std::shared_ptr<void>> chunks;
  for (size_t filled = 0; filled + source.bytes() <= bytes; filled += source.bytes()) {
    std::shared_ptr<void> chunk = memory.try_allocate(source.bytes());
    if (chunk == nullptr) break;
    backend.ops().copy(source, word_tensor(chunk.get(), source.bytes()));
    chunks.push_back(std::move(chunk));
  }
  backend.ops().synchronize();
  std::vector<uint64_t> back(pattern.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    memory.download(chunks[i].get(), back.data(), source.bytes());
    if (!std::ranges::equal(back, pattern)) {
      return absl::DataLossError(absl::StrFormat(
          "device memory returned other words than were written, %d MiB into %d MiB",
          i * (source.bytes() >> 20), chunks.size() * (source.bytes() >> 20)));
    }
  }
  return absl::OkStatus();
}

absl::Status test_memory(Backend& backend, double seconds, DeepMeasurements& measured) {
  Ops& ops = backend.ops();
  const DeviceMemory& memory = backend.memory();
  const std::vector<uint64_t> pattern = pattern_of(kTestedCopyBytes);
  const auto room = memory.allocate(2 * kTestedCopyBytes);
  const Tensor from = word_tensor(room.get(), kTestedCopyBytes);
  const Tensor to =
      word_tensor(static_cast<char*>(room.get()) + kTestedCopyBytes, kTestedCopyBytes);
  std::vector<uint64_t> back(pattern.size());
  std::vector<double> up, within, down;
  const auto timed = [&](std::vector<double>& times, const auto& copy) {
    const Instant began = monotonic_now();
    copy();
    ops.synchronize();
    times.push_back(to_seconds(monotonic_now() - began));
  };
  const Instant began = monotonic_now();
  do {
    timed(up, [&] { memory.upload(pattern.data(), from.data, kTestedCopyBytes); });
    timed(within, [&] { ops.copy(from, to); });
    timed(down, [&] { memory.download(to.data, back.data(), kTestedCopyBytes); });
    if (back != pattern)
      return absl::DataLossError("a copy returned other words than were written");
  } while (to_seconds(monotonic_now() - began) < seconds);
  const auto rate = [](std::vector<double> times, double passes) {
    return passes * static_cast<double>(kTestedCopyBytes) / median_of_measured(std::move(times)) *
           1e-9;
  };
  measured.push_back({"memory", rate(std::move(within), 2), "GB/s"});
  if (memory.is_host()) return absl::OkStatus();
  measured.push_back({"copy_to_device", rate(std::move(up), 1), "GB/s"});
  measured.push_back({"copy_from_device", rate(std::move(down), 1), "GB/s"});
  return test_filled(backend, from, pattern, seconds);
}

// Returns the CPU's name; "" if the kernel does not have it.
std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  constexpr std::string_view kKey = "model name";
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with(kKey) && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

}  // namespace

double median_of_measured(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

absl::Status test_device(Backend& backend, double seconds, DeepMeasurements& measured) {
  absl::Status status = test_gemm(backend, DType::kF32, "gemm", seconds, measured);
  if (status.ok() && !backend.memory().is_host())
    status = test_gemm(backend, DType::kBf16, "gemm_bf16", seconds, measured);
  if (status.ok()) status = test_memory(backend, seconds, measured);
  return status;
}

absl::Status test_storage(const std::string& folder, size_t bytes, double seconds,
                          DeepMeasurements& measured) {
  const std::vector<uint64_t> data = pattern_of(bytes);
  std::vector<uint64_t> back(data.size());
  std::string path = absl::StrCat(folder, "/muster-node-check.XXXXXX");
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return file_status(errno, absl::StrCat("making a file in ", folder));
  const absl::Cleanup close_file = [fd] { close(fd); };
  // Unlinked at once, because a check that hangs is killed and cannot clean up.
  unlink(path.c_str());
  // Calls `transfer` (pwrite or pread) until all bytes are transferred.
  const auto transfer_all = [&](auto transfer, auto* buffer, const char* what) -> absl::Status {
    auto* at = reinterpret_cast<std::conditional_t<
        std::is_const_v<std::remove_pointer_t<decltype(buffer)>>, const char, char>*>(buffer);
    for (size_t done = 0; done < bytes;) {
      const ssize_t got = transfer(fd, at + done, bytes - done, static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return file_status(errno, absl::StrCat(what, " a file in ", folder));
      if (got == 0) return absl::DataLossError(absl::StrCat("a file in ", folder, " is too short"));
      done += static_cast<size_t>(got);
    }
    return absl::OkStatus();
  };
  std::vector<double> written, read;
  const Instant began = monotonic_now();
  do {
    Instant start = monotonic_now();
    if (auto status = transfer_all(pwrite, data.data(), "writing"); !status.ok()) return status;
    if (fsync(fd) != 0) return file_status(errno, absl::StrCat("syncing a file in ", folder));
    written.push_back(to_seconds(monotonic_now() - start));
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);  // makes the read come from the disk
    start = monotonic_now();
    if (auto status = transfer_all(pread, back.data(), "reading"); !status.ok()) return status;
    read.push_back(to_seconds(monotonic_now() - start));
    if (back != data) {
      return absl::DataLossError(
          absl::StrCat(folder, " returned different bytes than were written"));
    }
  } while (to_seconds(monotonic_now() - began) < seconds);
  const double size = static_cast<double>(bytes) * 1e-9;
  measured.push_back({"storage_write", size / median_of_measured(std::move(written)), "GB/s"});
  measured.push_back({"storage_read", size / median_of_measured(std::move(read)), "GB/s"});
  return absl::OkStatus();
}

absl::Status check_visible_gpus(std::string_view gpus, int devices, const absl::Status& no_device) {
  const auto named = 1 + std::ranges::count(gpus, ',');
  if (devices == named || absl::IsUnimplemented(no_device)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("CUDA finds ", devices, " of the worker's ",
                                                    named, " GPUs", no_device.ok() ? "" : ": ",
                                                    no_device.message()));
}

std::string describe_kind(const Backend& backend, int devices) {
  const std::string text = backend.description();
  if (!backend.memory().is_host())
    return absl::StrCat(devices, " x ", text.substr(0, text.find(',')));
  return absl::StrCat(backend.threads(), " threads, ", cpu_name());
}

}  // namespace muster::trainer
