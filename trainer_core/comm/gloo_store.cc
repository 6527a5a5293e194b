#include "trainer_core/comm/gloo_store.h"

#include <stdexcept>

namespace muster::trainer {
namespace {

[[noreturn]] void fail(const absl::Status& status) {
  throw std::runtime_error(std::string(status.message()));
}

}  // namespace

void GlooStore::set(const std::string& key, const std::vector<char>& data) {
  if (auto status = client_->set(prefix_ + key, {data.data(), data.size()}); !status.ok())
    fail(status);
}

std::vector<char> GlooStore::get(const std::string& key) {
  auto value = client_->get(prefix_ + key, timeout_);
  if (!value.ok()) fail(value.status());
  return {value->begin(), value->end()};
}

void GlooStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void GlooStore::wait(const std::vector<std::string>& keys,
                     const std::chrono::milliseconds& timeout) {
  for (const std::string& key : keys) {
    if (auto value = client_->get(prefix_ + key, timeout); !value.ok()) fail(value.status());
  }
}

bool GlooStore::has(const std::string& key) {
  const auto value = client_->get(prefix_ + key, std::chrono::milliseconds(0));
  return value.ok() || value.status().code() != absl::StatusCode::kDeadlineExceeded;
}

}  // namespace muster::trainer
