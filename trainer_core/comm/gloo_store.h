// Gloo's rendezvous over the rendezvous store of the worker. Internal to comm.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gloo/rendezvous/store.h>
#include <gloo/transport/device.h>

#include "trainer_core/comm/rendezvous_client.h"

namespace muster::trainer {

// Implements Gloo's store interface. Throws on errors, as this interface requires; gloo.cc catches
// the exceptions. Called on one thread only.
class GlooStore : public gloo::rendezvous::Store {
 public:
  GlooStore(std::unique_ptr<RendezvousClient> client, std::string prefix,
            std::chrono::milliseconds timeout)
      : client_(std::move(client)), prefix_(std::move(prefix)), timeout_(timeout) {}

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

  // Returns whether `key` is set, without waiting for it. Returns true if the store does not
  // respond.
  bool has(const std::string& key);

 private:
  std::unique_ptr<RendezvousClient> client_;
  std::string prefix_;
  std::chrono::milliseconds timeout_;
};

// Connects a gloo::rendezvous::Context to all others of the store. Newer versions of Gloo take the
// store as a shared pointer, older ones by reference. Throws on errors, as Gloo does.
template <class Context>
void connect_full_mesh(Context& context, const std::shared_ptr<GlooStore>& store,
                       std::shared_ptr<gloo::transport::Device>& device) {
  if constexpr (requires { context.connectFullMesh(store, device); }) {
    context.connectFullMesh(store, device);
  } else {
    context.connectFullMesh(*store, device);
  }
}

}  // namespace muster::trainer
