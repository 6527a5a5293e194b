#include "daemon/trust_options.h"

namespace muster::daemon {

void add_trust_options(CLI::App& command, ClientTrust& trust, bool environment) {
  const auto add = [&](const char* flag, const char* variable, std::string& path,
                       const char* help) {
    CLI::Option* option = command.add_option(flag, path, help)->type_name("FILE")->group("Trust");
    if (environment) option->envname(variable);
  };
  add("--tls-ca", "MUSTER_TLS_CA", trust.tls_ca,
      "Certificates of the coordinator's certificate authority: connects by TLS");
  add("--tls-cert", "MUSTER_TLS_CERT", trust.tls_cert,
      "A certificate of its own, for a coordinator with --tls-client-ca");
  add("--tls-key", "MUSTER_TLS_KEY", trust.tls_key, "The key of --tls-cert");
  add("--token-file", "MUSTER_TOKEN_FILE", trust.token_file,
      "A file whose first line is the token for the coordinator");
}

}  // namespace muster::daemon
