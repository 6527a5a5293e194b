#include "trainer_core/comm/gloo.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>

#include "trainer_core/base/check.h"
#include "trainer_core/comm/collective_trace.h"
#include "trainer_core/comm/gloo_exchange.h"
#include "trainer_core/comm/gloo_store.h"
#include "trainer_core/comm/reduce.h"

namespace muster::trainer {
namespace {

// Slots of send and recv: apart from those of collectives, which all ranks count alike.
constexpr uint64_t kPointToPointSlot = uint64_t{1} << 62;

// Elements that an all-reduce handles at a time (8 MiB): bounds the copies of the peers' parts that a rank holds.
constexpr size_t kAllReduceBlock = size_t{1} << 21;

// All-reduce is a direct exchange: each rank receives every rank's version of its own slice, adds
// them in rank order, and sends the sum to all. It moves as many bytes as a ring in two steps
// instead of 2(n-1), and adds as `local` does.
class GlooGroup : public ProcessGroup {
 public:
  GlooGroup(std::shared_ptr<gloo::Context> context, const GlooOptions& options,
            ProgressWriter* page)
      : exchange_(std::move(context), options.timeout),
        rank_(options.rank),
        size_(options.size),
        trace_(page, options.group),
        sent_(ranks()),
        received_(ranks()) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  absl::Status all_reduce(std::span<float> data, std::string_view name) override {
    return trace_.run(CollectiveKind::kAllReduce, name, data.size_bytes(), [&] {
      absl::Status status;
      for (size_t at = 0; at < data.size() && status.ok(); at += kAllReduceBlock) {
        status = all_reduce_block(data.subspan(at, std::min(kAllReduceBlock, data.size() - at)));
      }
      return status;
    });
  }

  absl::Status all_gather(std::span<const float> input, std::span<float> output,
                          std::string_view name) override {
    MUSTER_CHECK(output.size() == input.size() * ranks()) << "all_gather into " << output.size();
    return trace_.run(CollectiveKind::kAllGather, name, input.size_bytes(), [&] {
      const auto part = [&](int r) {
        return output.subspan(static_cast<size_t>(r) * input.size(), input.size());
      };
      std::copy(input.begin(), input.end(), part(rank_).begin());
      return round([&](int) { return input; }, part);
    });
  }

  absl::Status reduce_scatter(std::span<const float> input, std::span<float> output,
                              std::string_view name) override {
    MUSTER_CHECK(input.size() == output.size() * ranks()) << "reduce_scatter of " << input.size();
    return trace_.run(CollectiveKind::kReduceScatter, name, input.size_bytes(), [&] {
      const float* mine = input.data() + static_cast<size_t>(rank_) * output.size();
      std::copy_n(mine, output.size(), output.begin());
      return sum_over_ranks(input.data(), output, [&](int r) {
        return Slice{static_cast<size_t>(r) * output.size(), output.size()};
      });
    });
  }

  absl::Status all_to_all(std::span<const float> input, std::span<float> output,
                          std::string_view name) override {
    MUSTER_CHECK(input.size() == output.size() && input.size() % ranks() == 0)
        << "all_to_all of " << input.size();
    return trace_.run(CollectiveKind::kAllToAll, name, input.size_bytes(), [&] {
      const size_t count = input.size() / ranks();
      const auto in = [&](int r) { return input.subspan(static_cast<size_t>(r) * count, count); };
      const auto out = [&](int r) { return output.subspan(static_cast<size_t>(r) * count, count); };
      std::copy(in(rank_).begin(), in(rank_).end(), out(rank_).begin());
      return round(in, out);
    });
  }

  absl::Status broadcast(std::span<float> data, int root, std::string_view name) override {
    return trace_.run(CollectiveKind::kBroadcast, name, data.size_bytes(), [&] {
      return round(
          [&](int) {
            return rank_ == root ? std::span<const float>(data) : std::span<const float>();
          },
          [&](int peer) { return peer == root ? data : std::span<float>(); });
    });
  }

  absl::Status send(std::span<const float> data, int to, std::string_view name) override {
    return trace_.run(CollectiveKind::kSend, name, data.size_bytes(), [&] {
      return exchange_.run(kPointToPointSlot + sent_[static_cast<size_t>(to)]++,
                           {{to, data.data(), data.size()}}, {});
    });
  }
  absl::Status recv(std::span<float> data, int from, std::string_view name) override {
    return trace_.run(CollectiveKind::kRecv, name, data.size_bytes(), [&] {
      return exchange_.run(kPointToPointSlot + received_[static_cast<size_t>(from)]++, {},
                           {{from, data.data(), data.size()}});
    });
  }

  absl::Status barrier(std::string_view name) override {
    return trace_.run(CollectiveKind::kBarrier, name, 0, [&] {
      const float here = 1;
      std::vector<float> all(ranks());
      return round([&](int) { return std::span(&here, 1); },
                   [&](int peer) { return std::span(&all[static_cast<size_t>(peer)], 1); });
    });
  }

  void abort() override { exchange_.abort(); }

 private:
  size_t ranks() const { return static_cast<size_t>(size_); }

  absl::Status all_reduce_block(std::span<float> data) {
    const auto part = [&](int r) { return slice_of(data.size(), r, size_); };
    const std::span<float> sum = data.subspan(part(rank_).offset, part(rank_).count);
    if (auto status = sum_over_ranks(data.data(), sum, part); !status.ok()) return status;
    return round([&](int) { return std::span<const float>(sum); },
                 [&](int peer) { return data.subspan(part(peer).offset, part(peer).count); });
  }

  // Sends `out(peer)` to every other rank and fills `in(peer)` from it.
  template <class Out, class In>
  absl::Status round(Out&& out, In&& in) {
    std::vector<OutgoingPart> outgoing;
    std::vector<IncomingPart> incoming;
    for (int step = 1; step < size_; ++step) {
      // Begins with the next rank, so that not everyone writes to rank 0 first.
      const int peer = (rank_ + step) % size_;
      const std::span<const float> outgoing_part = out(peer);
      const std::span<float> incoming_part = in(peer);
      outgoing.push_back({peer, outgoing_part.data(), outgoing_part.size()});
      incoming.push_back({peer, incoming_part.data(), incoming_part.size()});
    }
    return exchange_.run(slot_++, outgoing, incoming);
  }

  // `sum` holds this rank's part and becomes the sum of all ranks' versions of it, added in rank
  // order. `part(r)` is where rank r's part lies in `input`.
  template <class Part>
  absl::Status sum_over_ranks(const float* input, std::span<float> sum, Part&& part) {
    scratch_.resize(sum.size() * ranks());
    const auto version = [&](int r) {
      return std::span(scratch_).subspan(static_cast<size_t>(r) * sum.size(), sum.size());
    };
    auto status = round(
        [&](int peer) { return std::span(input + part(peer).offset, part(peer).count); }, version);
    if (!status.ok() || sum.empty()) return status;
    if (rank_ != 0) {
      std::copy(sum.begin(), sum.end(), version(rank_).begin());
      std::copy(version(0).begin(), version(0).end(), sum.begin());
    }
    for (int r = 1; r < size_; ++r) add_to(sum, version(r).data());
    return status;
  }

  GlooExchange exchange_;
  int rank_;
  int size_;
  CollectiveTrace trace_;
  uint64_t slot_ = 1;
  std::vector<uint64_t> sent_;
  std::vector<uint64_t> received_;
  std::vector<float> scratch_;
};

// Newer Gloo takes the store as a shared pointer, older by reference.
template <class Context>
void connect_full_mesh(Context& context, const std::shared_ptr<GlooStore>& store,
                       std::shared_ptr<gloo::transport::Device>& device) {
  if constexpr (requires { context.connectFullMesh(store, device); }) {
    context.connectFullMesh(store, device);
  } else {
    context.connectFullMesh(*store, device);
  }
}

// Each rank sets this when it comes; Gloo's own keys differ between its versions.
std::string arrival_key(int rank) { return absl::StrCat("here/", rank); }

std::string ranks_that_did_not_come(GlooStore& store, int size) {
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    if (!store.has(arrival_key(rank))) missing.push_back(rank);
  }
  return absl::StrJoin(missing, ", ");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> connect_gloo(const GlooOptions& options,
                                                           ProgressWriter* page) {
  auto client = RendezvousClient::connect(options.rendezvous, options.connect_timeout);
  if (!client.ok()) return client.status();
  const std::string prefix = absl::StrCat(options.scope, options.group, "/");
  auto store = std::make_shared<GlooStore>(std::move(*client), prefix, options.connect_timeout);
  auto context = std::make_shared<gloo::rendezvous::Context>(options.rank, options.size);
  try {
    store->set(arrival_key(options.rank), {'1'});
    context->setTimeout(options.connect_timeout);
    gloo::transport::tcp::attr attributes;
    attributes.hostname = options.bind_address;
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(attributes);
    connect_full_mesh(*context, store, device);
    context->setTimeout(options.timeout);
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
  return std::make_unique<GlooGroup>(std::move(context), options, page);
}

}  // namespace muster::trainer
