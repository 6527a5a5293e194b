#include "trainer_core/comm/gloo.h"

#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>

#include "trainer_core/comm/gloo_store.h"
#include "trainer_core/comm/gloo_transport.h"

namespace muster::trainer {
namespace {

// Returns the key that a rank sets when it joins. Gloo's own keys differ between its versions.
std::string arrival_key(int rank) { return absl::StrCat("here/", rank); }

std::string ranks_that_did_not_come(GlooStore& store, int size) {
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    if (!store.has(arrival_key(rank))) missing.push_back(rank);
  }
  return absl::StrJoin(missing, ", ");
}

}  // namespace

absl::StatusOr<std::shared_ptr<Transport>> connect_gloo(const GlooOptions& options) {
  auto client = RendezvousClient::connect(options.rendezvous, options.connect_timeout);
  if (!client.ok()) return client.status();
  auto store = std::make_shared<GlooStore>(std::move(*client), absl::StrCat(options.scope, "gloo/"),
                                           options.connect_timeout);
  auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
  try {
    store->set(arrival_key(options.rank), {'1'});
    context->setTimeout(options.connect_timeout);
    gloo::transport::tcp::attr attributes;
    attributes.hostname = options.bind_address;
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(attributes);
    connect_full_mesh(*context, store, device);
  } catch (const std::exception& e) {
    if (const std::string missing = ranks_that_did_not_come(*store, options.size);
        !missing.empty()) {
      return absl::DeadlineExceededError(absl::StrCat("rank ", options.rank, " of ", options.size,
                                                      " waited ", options.connect_timeout.count(),
                                                      " ms for these ranks: ", missing));
    }
    return absl::UnavailableError(absl::StrCat("rank ", options.rank,
                                               " cannot connect to its peers from ",
                                               options.bind_address, ": ", e.what()));
  }
  auto transport = std::make_shared<GlooTransport>(context, options.connect_timeout);
  if (auto status = transport->greet(); !status.ok()) return status;
  context->setTimeout(options.timeout);
  transport->set_timeout(options.timeout);
  return transport;
}

}  // namespace muster::trainer
