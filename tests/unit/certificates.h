// A certificate authority for tests and the certificates that it signs, as PEM.
#pragma once

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace muster {

class TestAuthority {
 public:
  struct Signed {
    std::string certificate, key;
  };

  TestAuthority() {
    key_ = EVP_EC_gen("P-256");
    certificate_ = make("test authority", key_, "");
  }
  ~TestAuthority() {
    X509_free(certificate_);
    EVP_PKEY_free(key_);
  }
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  std::string certificate() const { return pem(certificate_); }

  // `names` as in OpenSSL's configuration: "IP:127.0.0.1,DNS:localhost".
  Signed sign(const std::string& names) {
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* made = make("test", key, names);
    Signed result{pem(made), pem(key)};
    X509_free(made);
    EVP_PKEY_free(key);
    return result;
  }

 private:
  X509* make(const std::string& name, EVP_PKEY* key, const std::string& names) {
    X509* made = X509_new();
    X509_set_version(made, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(made), -3600);
    X509_gmtime_adj(X509_getm_notAfter(made), 3600);
    X509_set_pubkey(made, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    const bool own = certificate_ == nullptr;
    X509_set_issuer_name(made, X509_get_subject_name(own ? made : certificate_));
    extend(made, NID_basic_constraints, own ? "critical,CA:TRUE" : "CA:FALSE");
    if (!names.empty()) extend(made, NID_subject_alt_name, names);
    if (X509_sign(made, key_, EVP_sha256()) == 0) throw std::runtime_error("X509_sign");
    return made;
  }
  static void extend(X509* made, int nid, const std::string& value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str());
    if (extension == nullptr) throw std::runtime_error(value);
    X509_add_ext(made, extension, -1);
    X509_EXTENSION_free(extension);
  }
  static std::string text_of(BIO* bio) {
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(bio, &bytes);
    std::string text(bytes, static_cast<size_t>(size));
    BIO_free(bio);
    return text;
  }
  static std::string pem(X509* certificate) {
    BIO* bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, certificate);
    return text_of(bio);
  }
  static std::string pem(EVP_PKEY* key) {
    BIO* bio = BIO_new(BIO_s_mem());
    PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
    return text_of(bio);
  }

  long serial_ = 0;
  EVP_PKEY* key_ = nullptr;
  X509* certificate_ = nullptr;
};

}  // namespace muster
