#include "daemon/listen.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster::daemon {

absl::Status listen_on(std::string_view flag, const Endpoint& endpoint,
                       boost::asio::ip::tcp::acceptor& acceptor) {
  namespace asio = boost::asio;
  using tcp = asio::ip::tcp;
  const std::string subject = absl::StrCat(av(flag), "=", endpoint.to_string(), ": ");
  boost::system::error_code error;
  tcp::resolver resolver(acceptor.get_executor());
  const auto found = resolver.resolve(endpoint.host, absl::StrCat(endpoint.port), error);
  if (error || found.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(subject, "the host has no address: ", error.message()));
  }
  // Prefers IPv4, because clients use IPv4 addresses by default and "localhost" must not mean ::1
  // alone.
  const auto v4 = std::find_if(found.begin(), found.end(), [](const auto& entry) {
    return entry.endpoint().address().is_v4();
  });
  const tcp::endpoint address = (v4 == found.end() ? found.begin() : v4)->endpoint();
  acceptor.open(address.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(address, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::address_in_use) {
    return absl::AlreadyExistsError(
        absl::StrCat(subject, "port ", endpoint.port,
                     " is in use by another program; stop that one, or choose another port (0 "
                     "takes a free one)"));
  }
  if (error) return absl::UnavailableError(absl::StrCat(subject, error.message()));
  return absl::OkStatus();
}

}  // namespace muster::daemon
