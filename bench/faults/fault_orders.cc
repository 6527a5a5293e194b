#include "bench/faults/fault_orders.h"

#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <utility>

#include <nlohmann/json.hpp>

namespace muster::faults {
namespace {

constexpr int64_t kNanoseconds = 1'000'000'000;

int64_t change_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return 0;
  return status.st_mtim.tv_sec * kNanoseconds + status.st_mtim.tv_nsec;
}

}  // namespace

FaultOrders::FaultOrders(std::string folder, int32_t rank)
    : folder_(std::move(folder)), rank_(rank) {
  take();  // discards an order for an earlier attempt
}

std::optional<Fault> FaultOrders::take() {
  if (folder_.empty()) return std::nullopt;
  const int64_t change = change_of(folder_ + "/order.json");
  if (change == last_change_ns_) return std::nullopt;
  last_change_ns_ = change;
  return read();
}

std::optional<Fault> FaultOrders::read() const {
  std::ifstream file(folder_ + "/order.json");
  const auto order = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!order.is_object()) return std::nullopt;
  for (const auto& fault : order.value("faults", nlohmann::json::array())) {
    if (fault.value("rank", -1) != rank_) continue;
    return Fault{order.value("number", int64_t{0}), fault.value("kind", std::string()),
                 fault.value("factor", 1.0), fault.value("seconds", 0.0),
                 fault.value("path", std::string())};
  }
  return std::nullopt;
}

void FaultOrders::record_time(const Fault& fault) const {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string path =
      folder_ + "/done." + std::to_string(fault.number) + "." + std::to_string(rank_);
  std::ofstream(path + ".tmp") << std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()
                               << '\n';
  std::rename((path + ".tmp").c_str(), path.c_str());
}

}  // namespace muster::faults
