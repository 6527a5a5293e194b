#include "daemon/trust_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <ctime>
#include <memory>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "common/files/file_read.h"
#include "common/text/absl_view.h"

namespace muster::daemon {
namespace {

// The maximum size of a file: four times a bundle of all public authorities.
constexpr size_t kTrustFileBytesMax = 1 << 20;

template <auto free>
struct OpenSslFree {
  template <class T>
  void operator()(T* object) const {
    free(object);
  }
};
using BioPointer = std::unique_ptr<BIO, OpenSslFree<BIO_free>>;
using CertificatePointer = std::unique_ptr<X509, OpenSslFree<X509_free>>;
using KeyPointer = std::unique_ptr<EVP_PKEY, OpenSslFree<EVP_PKEY_free>>;

absl::Status bad_file(std::string_view flag, const std::string& path, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(av(flag), "=", path, ": ", av(why)));
}

absl::StatusOr<std::string> read_bounded(std::string_view flag, const std::string& path) {
  return read_file_up_to(kTrustFileBytesMax, path, absl::StrCat(av(flag), "=", path));
}

BioPointer memory_of(const std::string& bytes) {
  return BioPointer(BIO_new_mem_buf(bytes.data(), static_cast<int>(bytes.size())));
}

CertificatePointer first_certificate(const std::string& pem) {
  const BioPointer bio = memory_of(pem);
  CertificatePointer certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate;
}

// Supplies no passphrase, because a daemon cannot prompt for one.
int no_passphrase(char*, int, int, void*) { return 0; }

KeyPointer key_in(const std::string& pem) {
  const BioPointer bio = memory_of(pem);
  KeyPointer key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  return key;
}

absl::Status no_token(std::string_view flag, const std::string& path, int line) {
  return bad_file(flag, path,
                  absl::StrCat("line ", line, " is no token: ", kTokenBytesMin, " to ",
                               kTokenBytesMax, " visible characters without spaces"));
}

bool is_token(std::string_view text) {
  return text.size() >= kTokenBytesMin && text.size() <= kTokenBytesMax &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); });
}

}  // namespace

absl::StatusOr<std::string> read_certificates(std::string_view flag, const std::string& path) {
  auto pem = read_bounded(flag, path);
  if (!pem.ok()) return pem;
  if (first_certificate(*pem) == nullptr)
    return bad_file(flag, path, "there is no certificate in it; PEM is expected");
  return pem;
}

absl::StatusOr<CertificateValidity> certificate_validity(std::string_view flag,
                                                         const std::string& path,
                                                         const std::string& pem) {
  const CertificatePointer certificate = first_certificate(pem);
  tm begin{};
  tm end{};
  if (certificate == nullptr ||
      ASN1_TIME_to_tm(X509_get0_notBefore(certificate.get()), &begin) != 1 ||
      ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &end) != 1)
    return bad_file(flag, path, "the time in which the certificate is valid cannot be read");
  return CertificateValidity{timegm(&begin), timegm(&end)};
}

absl::StatusOr<KeyPair> read_key_pair(const std::string& certificate_path,
                                      const std::string& key_path, std::string_view flags) {
  const std::string cert_flag = absl::StrCat(av(flags), "-cert");
  const std::string key_flag = absl::StrCat(av(flags), "-key");
  auto certificate = read_certificates(cert_flag, certificate_path);
  if (!certificate.ok()) return certificate.status();
  auto key = read_bounded(key_flag, key_path);
  if (!key.ok()) return key.status();
  const KeyPointer parsed = key_in(*key);
  if (parsed == nullptr) {
    return bad_file(key_flag, key_path,
                    "there is no private key in it; PEM without a passphrase is expected");
  }
  const bool match =
      X509_check_private_key(first_certificate(*certificate).get(), parsed.get()) == 1;
  ERR_clear_error();
  if (!match) {
    return bad_file(key_flag, key_path,
                    absl::StrCat("the key is not that of ", cert_flag, "=", certificate_path));
  }
  return KeyPair{*std::move(certificate), *std::move(key)};
}

absl::StatusOr<std::vector<TokenLine>> read_token_lines(std::string_view flag,
                                                        const std::string& path) {
  const auto text = read_bounded(flag, path);
  if (!text.ok()) return text.status();
  std::vector<TokenLine> lines;
  int number = 0;
  for (const absl::string_view untrimmed : absl::StrSplit(*text, '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(untrimmed);
    if (line.empty() || line[0] == '#') continue;
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(absl::ByAnyChar(" \t"), 1));
    if (!is_token({parts.first.data(), parts.first.size()})) return no_token(flag, path, number);
    if (lines.size() == kTokensPerFileMax)
      return bad_file(flag, path, absl::StrCat("more than ", kTokensPerFileMax, " tokens"));
    lines.push_back({.token = std::string(parts.first),
                     .rest = std::string(absl::StripAsciiWhitespace(parts.second)),
                     .number = number});
  }
  return lines;
}

absl::StatusOr<std::vector<std::string>> read_tokens(std::string_view flag,
                                                     const std::string& path) {
  auto lines = read_token_lines(flag, path);
  if (!lines.ok()) return lines.status();
  std::vector<std::string> tokens;
  for (TokenLine& line : *lines) {
    if (!line.rest.empty()) return no_token(flag, path, line.number);
    tokens.push_back(std::move(line.token));
  }
  return tokens;
}

TokenDigest token_digest(std::string_view token) {
  TokenDigest digest{};
  EVP_Digest(token.data(), token.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  return digest;
}

}  // namespace muster::daemon
