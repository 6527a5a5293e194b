#include "daemon/endpoint.h"

#include <algorithm>
#include <utility>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <boost/asio/ip/address.hpp>

#include "common/text/absl_view.h"

namespace muster::daemon {
namespace {

constexpr int kPortMax = 65'535;
constexpr size_t kPortDigitsShown = 20;  // bound of the typed port in messages
constexpr size_t kHostBytesMax = 253;    // RFC 1035's limit of a name

absl::Status bad_endpoint(std::string_view flag, std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(av(flag), "=", av(text.substr(0, 2 * kHostBytesMax)), ": ", av(why),
                   "; expected host:port, for example 127.0.0.1:7070"));
}

}  // namespace

std::string Endpoint::to_string() const {
  if (host.find(':') != std::string::npos) return absl::StrCat("[", host, "]:", port);
  return absl::StrCat(host, ":", port);
}

absl::StatusOr<Endpoint> parse_endpoint(std::string_view flag, std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad_endpoint(flag, text, "the port is missing");
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad_endpoint(flag, text, "an IPv6 address needs brackets");
  }
  if (host.empty()) return bad_endpoint(flag, text, "the host is missing");
  if (host.size() > kHostBytesMax) return bad_endpoint(flag, text, "the host is too long");
  for (const char c : host) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= ' ' || byte >= 0x7F || c == '/')
      return bad_endpoint(flag, text, "the host is not a name");
  }
  const bool all_digits = digits.find_first_not_of("0123456789") == std::string_view::npos;
  int port = -1;
  if (!all_digits || !absl::SimpleAtoi(av(digits), &port) || port > kPortMax) {
    return bad_endpoint(flag, text,
                        absl::StrCat("port '", av(digits.substr(0, kPortDigitsShown)),
                                     "' is not a number from 0 to ", kPortMax));
  }
  return Endpoint{std::string(host), port};
}

absl::StatusOr<std::vector<Endpoint>> parse_coordinators(std::string_view text) {
  constexpr std::string_view kFlag = "--coordinator";
  std::vector<Endpoint> coordinators;
  for (const absl::string_view entry : absl::StrSplit(av(text), ',')) {
    auto endpoint = parse_endpoint(kFlag, std::string_view(entry.data(), entry.size()));
    if (!endpoint.ok()) return endpoint.status();
    if (endpoint->port == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(av(kFlag), "=", entry, ": port 0 cannot be connected to"));
    }
    if (std::any_of(coordinators.begin(), coordinators.end(), [&](const Endpoint& other) {
          return other.to_string() == endpoint->to_string();
        })) {
      return absl::InvalidArgumentError(
          absl::StrCat(av(kFlag), "=", entry, ": this address is in the list twice"));
    }
    coordinators.push_back(*std::move(endpoint));
    if (coordinators.size() > kCoordinatorsMax) {
      return absl::InvalidArgumentError(absl::StrCat(av(kFlag), ": more than ", kCoordinatorsMax,
                                                     " addresses, the first too many is ", entry));
    }
  }
  return coordinators;
}

bool is_loopback(const Endpoint& endpoint) {
  if (endpoint.host == "localhost") return true;
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(endpoint.host, error);
  return !error && address.is_loopback();
}

absl::Status check_exposure(std::string_view flag, const Endpoint& endpoint, bool allowed,
                            std::string_view why) {
  if (allowed || is_loopback(endpoint)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(av(flag), "=", endpoint.to_string(),
                                                    ": others could reach this address, and ",
                                                    av(why), "; or listen on 127.0.0.1"));
}

absl::Status check_open_exposure(std::string_view flag, const Endpoint& endpoint, bool allowed) {
  return check_exposure(
      flag, endpoint, allowed,
      "it has no transport security; pass --trusted-network if only machines that "
      "you trust can reach it (--insecure means that, too)");
}

}  // namespace muster::daemon
