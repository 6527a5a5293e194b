#include "tests/unit/coordinator/shell/etcd/etcd_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/files/find_program.h"
#include "coordinator/shell/etcd/key_changes.h"
#include "coordinator/shell/etcd/row_codec.h"
#include "coordinator/shell/storage/sqlite_rows.h"

namespace muster::coordinator {
namespace {

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  bind(fd, reinterpret_cast<const sockaddr*>(&address), size);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  close(fd);
  return ntohs(address.sin_port);
}

// Starts the program in a process that ends with this one.
pid_t start(const std::vector<std::string>& words, const std::string& log) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  execv(arguments[0], arguments.data());
  _exit(127);
}

bool is_listening(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool answered =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return answered;
}

std::filesystem::path temporary_disk() {
  // Syncs cost nothing in memory.
  const std::filesystem::path memory = "/dev/shm";
  return access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
}

}  // namespace

std::string EtcdServer::program() {
  if (auto found = find_program_in_path("etcd"); found.ok()) return *found;
  const char* tools = std::getenv("MUSTER_TEST_TOOLS");
  const char* home = std::getenv("HOME");
  const std::filesystem::path folder =
      tools != nullptr ? tools : absl::StrCat(home != nullptr ? home : "", "/.cache/muster-tests");
  std::error_code none;
  for (const auto& file : std::filesystem::directory_iterator(folder / "bin", none)) {
    const std::string name = file.path().filename();
    if (absl::StartsWith(name, "etcd-") && access(file.path().c_str(), X_OK) == 0)
      return file.path();
  }
  return "";
}

EtcdServer& EtcdServer::shared() {
  static EtcdServer server;
  return server;
}

EtcdServer::EtcdServer(std::vector<std::string> flags, bool https)
    : folder_(temporary_disk()),
      port_(free_port()),
      endpoint_(absl::StrCat(https ? "https" : "http", "://127.0.0.1:", port_)) {
  const std::string peers = absl::StrCat("http://127.0.0.1:", free_port());
  // The short times permit leases of one second.
  std::vector<std::string> words = {program(),
                                    "--data-dir=" + folder_.file("data"),
                                    "--name=test",
                                    "--listen-client-urls=" + endpoint_,
                                    "--advertise-client-urls=" + endpoint_,
                                    "--listen-peer-urls=" + peers,
                                    "--initial-advertise-peer-urls=" + peers,
                                    "--initial-cluster=test=" + peers,
                                    "--heartbeat-interval=20",
                                    "--election-timeout=200"};
  words.insert(words.end(), flags.begin(), flags.end());
  pid_ = start(words, folder_.file("log"));
  for (int i = 0; i < 600; ++i) {
    if (is_listening(port_)) return;
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  throw std::runtime_error("etcd did not start: " + read_file(folder_.file("log")));
}

EtcdServer::~EtcdServer() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void EtcdServer::pause() const {
  kill(pid_, SIGSTOP);
  waitpid(pid_, nullptr, WUNTRACED);  // until all threads have stopped
}
void EtcdServer::resume() const { kill(pid_, SIGCONT); }

Term::Term(const EtcdOptions& options, Duration ttl) {
  client = EtcdClient::create(options).value();
  LeaderOptions leader;
  leader.self = {"127.0.0.1:7070", "127.0.0.1:7071", "test", getpid()};
  leader.ttl = ttl;
  lease = std::make_unique<LeaderLease>(*client, leader);
  EXPECT_TRUE(lease->campaign({}).ok());
}

void Term::open(const std::string& path) {
  auto opened = open_etcd_storage(*client, *lease, path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  storage = *std::move(opened);
}

void EtcdTest::SetUp() {
  if (EtcdServer::program().empty())
    GTEST_SKIP() << "there is no program etcd: deploy/install-deps.sh --tests";
  EtcdServer::shared();
}

EtcdOptions EtcdTest::options() const {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  EtcdOptions options;
  options.endpoints = EtcdServer::shared().endpoint();
  options.prefix = absl::StrCat("/", test->test_suite_name(), "/", test->name());
  return options;
}

std::vector<std::pair<std::string, std::string>> EtcdTest::keys() const {
  const auto client = EtcdClient::create(options()).value();
  etcdserverpb::RangeRequest request;
  request.set_key(client->key(""));
  request.set_range_end(prefix_end(client->key("")));
  const auto found = client->range(request, kLong);
  EXPECT_TRUE(found.ok()) << found.status();
  std::vector<std::pair<std::string, std::string>> keys;
  for (const auto& entry : found->kvs())
    keys.emplace_back(entry.key().substr(client->key("").size()), entry.value());
  return keys;
}

void EtcdTest::put(const std::string& key, const std::string& value) const {
  const auto client = EtcdClient::create(options()).value();
  etcdserverpb::TxnRequest request;
  add_put(request, client->key(key), value);
  ASSERT_TRUE(client->txn(request, kLong).ok());
}

void EtcdTest::depose(const EtcdOptions& options) {
  const auto client = EtcdClient::create(options).value();
  etcdserverpb::TxnRequest request;
  add_delete(request, client->key("leader"));
  ASSERT_TRUE(client->txn(request, kLong).ok());
}

std::vector<std::string> rows_of(const std::string& path) {
  std::vector<std::string> rows;
  auto db = SqliteDatabase::open(path);
  EXPECT_TRUE(db.ok()) << db.status();
  const auto tables = tables_of(*db);
  EXPECT_TRUE(tables.ok()) << tables.status();
  for (const SqliteTable& table : *tables) {
    absl::Status status = for_each_row(*db, table, [&](const SqliteRow& row) {
      std::string text = table.name;
      for (const std::string& part : encode_row(row)) text += part;
      rows.push_back(text);
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

}  // namespace muster::coordinator
