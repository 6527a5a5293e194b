// A real etcd of one member on free loopback ports, with its files in a temporary folder, and the
// terms of coordinators on it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <gtest/gtest.h>

#include "coordinator/shell/etcd/etcd_client.h"
#include "coordinator/shell/etcd/etcd_storage.h"
#include "coordinator/shell/etcd/leader_lease.h"
#include "coordinator/shell/storage/storage.h"
#include "tests/unit/temp_folder.h"

namespace muster::coordinator {

class EtcdServer {
 public:
  // Returns the program: the distribution's, or the one that tests/e2e/kube_build.py has built.
  // Empty: there is none.
  static std::string program();
  // Returns the server that the tests of this program share. Requires that program() is not empty.
  static EtcdServer& shared();

  // Starts etcd and waits until it answers. `https`: the flags are those of a server with TLS.
  explicit EtcdServer(std::vector<std::string> flags = {}, bool https = false);
  ~EtcdServer();
  EtcdServer(const EtcdServer&) = delete;
  EtcdServer& operator=(const EtcdServer&) = delete;

  // Stop all threads of the process, so that it does not answer, and continue them.
  void pause() const;
  void resume() const;

  int port() const { return port_; }
  const std::string& endpoint() const { return endpoint_; }

 private:
  TempFolder folder_;
  const int port_;
  const std::string endpoint_;
  pid_t pid_ = 0;
};

// One coordinator's term, without its server.
struct Term {
  // Waits until it is elected.
  Term(const EtcdOptions& options, Duration ttl);
  // Opens the storage; the file is `path`. A failure fails the test.
  void open(const std::string& path);

  std::unique_ptr<EtcdClient> client;
  std::unique_ptr<LeaderLease> lease;
  std::unique_ptr<Storage> storage;  // destroyed before the lease is given back
};

// Skips without etcd. Each test has keys of its own.
class EtcdTest : public testing::Test {
 protected:
  // A time to live in which no renewal fails by chance, and none happens during a short test.
  static constexpr Duration kLong = std::chrono::seconds(60);

  void SetUp() override;
  EtcdOptions options() const;
  // Returns all keys and values of this test, sorted by key.
  std::vector<std::pair<std::string, std::string>> keys() const;
  void put(const std::string& key, const std::string& value) const;
  // Takes the leader's key away, as if the lease had expired.
  void depose() const { depose(options()); }
  static void depose(const EtcdOptions& options);

  TempFolder folder_;
};

// Returns all rows of the file, as texts.
std::vector<std::string> rows_of(const std::string& path);

}  // namespace muster::coordinator
