// An issuer of signed tokens with an RSA and an EC key of its own.
#pragma once

#include <cjose/cjose.h>

#include <memory>
#include <string>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace muster::coordinator {

class TestIssuer {
 public:
  // `name`: the beginning of the keys' ids.
  explicit TestIssuer(std::string name = "key") : name_(std::move(name)) {
    const uint8_t exponent[] = {1, 0, 1};
    rsa_.reset(cjose_jwk_create_RSA_random(2048, exponent, sizeof(exponent), nullptr));
    ec_.reset(cjose_jwk_create_EC_random(CJOSE_JWK_EC_P_256, nullptr));
    EXPECT_TRUE(cjose_jwk_set_kid(rsa_.get(), rsa_id().data(), rsa_id().size(), nullptr));
    EXPECT_TRUE(cjose_jwk_set_kid(ec_.get(), ec_id().data(), ec_id().size(), nullptr));
  }

  std::string key_set() const {
    return absl::StrCat(R"({"keys": [)", public_key(rsa_.get()), ", ", public_key(ec_.get()), "]}");
  }

  std::string sign(const nlohmann::json& claims, const char* alg) const {
    const bool is_rsa = alg[0] != 'E';
    cjose_header_t* header = cjose_header_new(nullptr);
    cjose_header_set(header, CJOSE_HDR_ALG, alg, nullptr);
    cjose_header_set(header, CJOSE_HDR_KID, (is_rsa ? rsa_id() : ec_id()).c_str(), nullptr);
    const std::string text = claims.dump();
    cjose_jws_t* token =
        cjose_jws_sign(is_rsa ? rsa_.get() : ec_.get(), header,
                       reinterpret_cast<const uint8_t*>(text.data()), text.size(), nullptr);
    const char* compact = nullptr;
    EXPECT_TRUE(token != nullptr && cjose_jws_export(token, &compact, nullptr)) << alg;
    std::string result = compact == nullptr ? "" : compact;
    cjose_jws_release(token);
    cjose_header_release(header);
    return result;
  }

 private:
  struct Release {
    void operator()(cjose_jwk_t* key) const { cjose_jwk_release(key); }
  };

  std::string rsa_id() const { return name_ + "-rsa"; }
  std::string ec_id() const { return name_ + "-ec"; }
  static std::string public_key(const cjose_jwk_t* key) {
    char* text = cjose_jwk_to_json(key, /*priv=*/false, nullptr);
    std::string result = text;
    cjose_get_dealloc()(text);
    return result;
  }

  const std::string name_;
  std::unique_ptr<cjose_jwk_t, Release> rsa_;
  std::unique_ptr<cjose_jwk_t, Release> ec_;
};

}  // namespace muster::coordinator
