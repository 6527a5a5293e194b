#include <absl/strings/str_cat.h>

#include "trainer_core/ops/backend.h"

namespace muster::trainer {
namespace {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int threads) : threads_(threads), ops_(cpu_ops(threads)) {}

  Ops& ops() override { return *ops_; }
  const DeviceMemory& memory() const override { return host_memory(); }
  int threads() const override { return threads_; }
  std::string description() const override {
    return absl::StrCat("CPU, ", threads_, threads_ == 1 ? " thread" : " threads");
  }

 private:
  int threads_;
  std::unique_ptr<Ops> ops_;
};

}  // namespace

std::shared_ptr<Backend> cpu_backend(int threads) { return std::make_shared<CpuBackend>(threads); }

}  // namespace muster::trainer
