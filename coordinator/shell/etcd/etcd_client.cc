#include "coordinator/shell/etcd/etcd_client.h"

#include <algorithm>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <grpcpp/grpcpp.h>

#include "common/text/absl_view.h"
#include "daemon/endpoint.h"
#include "daemon/grpc_deadline.h"
#include "daemon/trust_files.h"
#include "etcd/etcd.grpc.pb.h"

namespace muster::coordinator {
namespace {

namespace api = etcdserverpb;

constexpr absl::string_view kHttp = "http://";
constexpr absl::string_view kHttps = "https://";
// A cluster of etcd has at most seven members in practice.
constexpr size_t kMembersMax = 16;

struct Address {
  std::string text;    // https://a:2379
  std::string target;  // a:2379
};

struct Addresses {
  bool https = false;
  std::vector<Address> all;
};

absl::Status bad_endpoints(const std::string& endpoints, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "--etcd=", endpoints, ": ", why,
      "; the members' addresses are expected, for example https://a:2379,https://b:2379"));
}

absl::StatusOr<Addresses> parse_endpoints(const std::string& endpoints) {
  Addresses addresses;
  for (const absl::string_view text : absl::StrSplit(endpoints, ',')) {
    const bool http = absl::StartsWith(text, kHttp);
    const bool https = absl::StartsWith(text, kHttps);
    if (addresses.all.empty()) addresses.https = https;
    if ((http || https) && https != addresses.https)
      return bad_endpoints(endpoints, "it has both http and https");
    const absl::string_view rest = text.substr(http ? kHttp.size() : https ? kHttps.size() : 0);
    const auto parsed = daemon::parse_endpoint("--etcd", sv(rest));
    if (!parsed.ok()) return bad_endpoints(endpoints, absl::StrCat("'", text, "' is no address"));
    const std::string target = parsed->to_string();
    addresses.all.push_back({absl::StrCat(addresses.https ? kHttps : kHttp, target), target});
  }
  if (addresses.all.size() > kMembersMax)
    return bad_endpoints(endpoints, absl::StrCat("it has more than ", kMembersMax, " addresses"));
  return addresses;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> read_credentials(
    const EtcdOptions& options, bool https) {
  if (!https) {
    if (options.ca.empty() && options.cert.empty() && options.key.empty())
      return grpc::InsecureChannelCredentials();
    return absl::InvalidArgumentError(
        absl::StrCat("--etcd-ca, --etcd-cert and --etcd-key need https addresses in --etcd, not ",
                     options.endpoints));
  }
  if (options.cert.empty() != options.key.empty()) {
    return absl::InvalidArgumentError(
        "--etcd-cert and --etcd-key go together: a certificate is of no use without its key");
  }
  grpc::SslCredentialsOptions ssl;
  if (!options.ca.empty()) {
    auto ca = daemon::read_certificates("--etcd-ca", options.ca);
    if (!ca.ok()) return ca.status();
    ssl.pem_root_certs = *std::move(ca);
  }
  if (!options.cert.empty()) {
    auto pair = daemon::read_key_pair(options.cert, options.key, "--etcd");
    if (!pair.ok()) return pair.status();
    ssl.pem_cert_chain = std::move(pair->certificate);
    ssl.pem_private_key = std::move(pair->key);
  }
  return grpc::SslCredentials(ssl);
}

grpc::ChannelArguments channel_arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A page of the state can have several large rows.
  arguments.SetMaxReceiveMessageSize(-1);
  // A member that comes back is used again within a second.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  // Finds connections whose other end has disappeared. etcd permits a ping each five seconds.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 3'000);
  return arguments;
}

bool is_out_of_space(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
         absl::StrContains(status.error_message(), "database space exceeded");
}

// Returns whether etcd names a reason that passes, although the code is that of a refusal: its
// leader or the rights of its users are being replaced.
bool is_transient(const grpc::Status& status) {
  for (const char* reason : {"not leader", "revision of auth store is old"})
    if (absl::StrContains(status.error_message(), reason)) return true;
  return false;
}

absl::Status to_status(const grpc::Status& status, const std::string& address) {
  if (status.ok()) return absl::OkStatus();
  const std::string text = absl::StrCat("etcd at ", address, ": ", status.error_message());
  if (is_transient(status)) return absl::UnavailableError(text);
  switch (status.error_code()) {
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::UNIMPLEMENTED:
      return {static_cast<absl::StatusCode>(status.error_code()), text};
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      if (!is_out_of_space(status)) break;
      return absl::ResourceExhaustedError(absl::StrCat(
          text,
          "; compact and defragment its members or raise --quota-backend-bytes, and then "
          "run: etcdctl alarm disarm"));
    default:
      break;
  }
  return absl::UnavailableError(text);
}

}  // namespace

struct EtcdClient::Member {
  Member(Address where, const std::shared_ptr<grpc::Channel>& channel,
         const std::shared_ptr<grpc::Channel>& lease_channel)
      : address(std::move(where.text)),
        kv(api::KV::NewStub(channel)),
        lease(api::Lease::NewStub(lease_channel)),
        maintenance(api::Maintenance::NewStub(channel)) {}

  template <typename Stub, typename Method, typename Request, typename Response>
  absl::Status call(Stub& stub, Method method, const Request& request, Response& response,
                    Duration timeout) const {
    grpc::ClientContext context;
    context.set_deadline(daemon::grpc_deadline(monotonic_now() + timeout));
    response.Clear();
    return to_status((stub.*method)(&context, request, &response), address);
  }

  const std::string address;
  const std::unique_ptr<api::KV::Stub> kv;
  const std::unique_ptr<api::Lease::Stub> lease;
  const std::unique_ptr<api::Maintenance::Stub> maintenance;
};

absl::StatusOr<std::unique_ptr<EtcdClient>> EtcdClient::create(const EtcdOptions& options) {
  auto addresses = parse_endpoints(options.endpoints);
  if (!addresses.ok()) return addresses.status();
  const std::string& prefix = options.prefix;
  if (prefix.size() < 2 || prefix.front() != '/' || prefix.back() == '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("--etcd-prefix=", prefix,
                     " must begin with a slash and not end with one, for example /muster"));
  }
  const auto credentials = read_credentials(options, addresses->https);
  if (!credentials.ok()) return credentials.status();
  std::vector<std::unique_ptr<Member>> members;
  std::string endpoints;
  for (Address& address : addresses->all) {
    absl::StrAppend(&endpoints, endpoints.empty() ? "" : ",", address.text);
    grpc::ChannelArguments arguments = channel_arguments();
    const auto channel = grpc::CreateCustomChannel(address.target, *credentials, arguments);
    // Renewals of the lease have a connection of their own: on that of the state they would wait
    // behind megabytes.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto lease_channel = grpc::CreateCustomChannel(address.target, *credentials, arguments);
    members.push_back(std::make_unique<Member>(std::move(address), channel, lease_channel));
  }
  return std::unique_ptr<EtcdClient>(
      new EtcdClient(prefix, std::move(endpoints), std::move(members)));
}

EtcdClient::EtcdClient(std::string prefix, std::string endpoints,
                       std::vector<std::unique_ptr<Member>> members)
    : prefix_(std::move(prefix)), endpoints_(std::move(endpoints)), members_(std::move(members)) {}

EtcdClient::~EtcdClient() = default;

std::string EtcdClient::key(std::string_view name) const {
  return absl::StrCat(prefix_, "/", av(name));
}

absl::Status EtcdClient::call_any(Duration timeout, Call call) {
  const Instant end = monotonic_now() + timeout;
  const size_t first = preferred_;
  absl::Status status;
  for (size_t i = 0; i < members_.size(); ++i) {
    const size_t index = (first + i) % members_.size();
    const Duration left = std::max(end - monotonic_now(), Duration(0));
    status = call(*members_[index], left / static_cast<int64_t>(members_.size() - i));
    if (absl::IsUnavailable(status)) continue;
    preferred_ = index;
    break;
  }
  return status;
}

absl::Status EtcdClient::call_one(Duration timeout, Call call) {
  const size_t index = preferred_ % members_.size();
  absl::Status status = call(*members_[index], timeout);
  if (absl::IsUnavailable(status)) preferred_ = (index + 1) % members_.size();
  return status;
}

absl::StatusOr<api::RangeResponse> EtcdClient::range(const api::RangeRequest& request,
                                                     Duration timeout) {
  api::RangeResponse response;
  absl::Status status = call_any(timeout, [&](Member& member, Duration left) {
    return member.call(*member.kv, &api::KV::Stub::Range, request, response, left);
  });
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<api::TxnResponse> EtcdClient::txn(const api::TxnRequest& request, Duration timeout) {
  api::TxnResponse response;
  absl::Status status = call_one(timeout, [&](Member& member, Duration left) {
    return member.call(*member.kv, &api::KV::Stub::Txn, request, response, left);
  });
  if (!status.ok()) return status;
  return response;
}

absl::Status EtcdClient::compact(int64_t revision, Duration timeout) {
  api::CompactionRequest request;
  request.set_revision(revision);
  api::CompactionResponse response;
  absl::Status status = call_any(timeout, [&](Member& member, Duration left) {
    return member.call(*member.kv, &api::KV::Stub::Compact, request, response, left);
  });
  // The revision is already compacted.
  return absl::IsOutOfRange(status) ? absl::OkStatus() : status;
}

absl::StatusOr<EtcdLease> EtcdClient::grant_lease(Duration ttl, Duration timeout) {
  api::LeaseGrantRequest request;
  request.set_ttl(std::chrono::ceil<std::chrono::seconds>(ttl).count());
  api::LeaseGrantResponse response;
  absl::Status status = call_any(timeout, [&](Member& member, Duration left) {
    return member.call(*member.lease, &api::Lease::Stub::LeaseGrant, request, response, left);
  });
  if (!status.ok()) return status;
  if (!response.error().empty())
    return absl::UnavailableError(absl::StrCat("etcd grants no lease: ", response.error()));
  return EtcdLease{response.id(), std::chrono::seconds(response.ttl())};
}

absl::StatusOr<Duration> EtcdClient::keep_lease_alive(int64_t lease, Duration timeout) {
  api::LeaseKeepAliveRequest request;
  request.set_id(lease);
  api::LeaseKeepAliveResponse response;
  absl::Status status = call_any(timeout, [&](Member& member, Duration left) {
    grpc::ClientContext context;
    context.set_deadline(daemon::grpc_deadline(monotonic_now() + left));
    const auto stream = member.lease->LeaseKeepAlive(&context);
    const bool answered = stream->Write(request) && stream->Read(&response);
    if (answered) context.TryCancel();
    const grpc::Status end = stream->Finish();
    if (answered) return absl::OkStatus();
    return end.ok() ? absl::UnavailableError(
                          absl::StrCat("etcd at ", member.address, " ended the renewal's stream"))
                    : to_status(end, member.address);
  });
  if (!status.ok()) return status;
  if (response.ttl() <= 0)
    return absl::NotFoundError("etcd has dropped the lease: it expired or was revoked");
  return std::chrono::seconds(response.ttl());
}

absl::Status EtcdClient::revoke_lease(int64_t lease, Duration timeout) {
  api::LeaseRevokeRequest request;
  request.set_id(lease);
  api::LeaseRevokeResponse response;
  absl::Status status = call_any(timeout, [&](Member& member, Duration left) {
    return member.call(*member.lease, &api::Lease::Stub::LeaseRevoke, request, response, left);
  });
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<api::StatusResponse> EtcdClient::status(Duration timeout) {
  const api::StatusRequest request;
  api::StatusResponse response;
  absl::Status status = call_any(timeout, [&](Member& member, Duration left) {
    return member.call(*member.maintenance, &api::Maintenance::Stub::Status, request, response,
                       left);
  });
  if (!status.ok()) return status;
  return response;
}

}  // namespace muster::coordinator
