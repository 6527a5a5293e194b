#include "bench/spawn_ranks.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "tests/unit/trainer_core/comm/store_server.h"

namespace muster::trainer {

int spawn_ranks(int ranks, std::vector<std::string> arguments) {
  const StoreServer store;
  std::vector<pid_t> children;
  arguments.insert(arguments.begin(), "rank");
  arguments.insert(arguments.end(), {"", store.address()});
  for (int rank = 0; rank < ranks; ++rank) {
    arguments[arguments.size() - 2] = std::to_string(rank);
    std::vector<char*> words;
    for (std::string& word : arguments) words.push_back(word.data());
    words.push_back(nullptr);
    pid_t child = 0;
    if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, words.data(), environ) != 0)
      return 1;
    children.push_back(child);
  }
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) worst = 1;
  }
  return worst;
}

}  // namespace muster::trainer
