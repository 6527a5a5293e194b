#include "coordinator/shell/identity/signed_tokens.h"

#include <gmock/gmock.h>

#include <string>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/str_split.h>
#include <gtest/gtest.h>

#include "tests/unit/coordinator/shell/identity/test_issuer.h"

namespace muster::coordinator {
namespace {

using ::testing::HasSubstr;

std::string refusal(const IssuerKeys& keys, std::string_view token) {
  return std::string(keys.claims_of(token).status().message());
}

std::string encoded(std::string_view text) {
  return absl::WebSafeBase64Escape(absl::string_view(text.data(), text.size()));
}

// The key and the token of RFC 7515, appendix A.3.
constexpr char kRfcKeys[] = R"({"keys": [{"kty": "EC", "crv": "P-256",
  "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
  "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]})";
constexpr char kRfcToken[] =
    "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNv"
    "bS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfK"
    "TUJqPP3-Kg6NU1Q";

TEST(SignedTokens, TheTokenOfTheStandardIsAccepted) {
  const auto keys = IssuerKeys::parse(kRfcKeys);
  ASSERT_TRUE(keys.ok()) << keys.status();
  const auto claims = keys->claims_of(kRfcToken);
  ASSERT_TRUE(claims.ok()) << claims.status();
  EXPECT_EQ(claims->claims["iss"], "joe");
  EXPECT_EQ(claims->claims["exp"], 1300819380);
  EXPECT_TRUE(keys->has(claims->key));
}

TEST(SignedTokens, EachAlgorithmOfAKeyIsAccepted) {
  TestIssuer issuer;
  const auto keys = IssuerKeys::parse(issuer.key_set());
  ASSERT_TRUE(keys.ok()) << keys.status();
  for (const char* alg : {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256"}) {
    const auto claims = keys->claims_of(issuer.sign({{"sub", "ann"}}, alg));
    ASSERT_TRUE(claims.ok()) << alg << ": " << claims.status();
    EXPECT_EQ(claims->claims["sub"], "ann");
  }
}

TEST(SignedTokens, ChangedTokensAreRefused) {
  TestIssuer issuer;
  const auto keys = IssuerKeys::parse(issuer.key_set());
  ASSERT_TRUE(keys.ok()) << keys.status();
  const std::string token = issuer.sign({{"sub", "ann"}}, "RS256");
  const std::vector<std::string> parts = absl::StrSplit(token, '.');
  const std::string forged = encoded(R"({"sub":"root"})");
  EXPECT_THAT(refusal(*keys, absl::StrCat(parts[0], ".", forged, ".", parts[2])),
              HasSubstr("its signature is wrong"));
  std::string damaged = token;
  damaged[token.size() - 40] = damaged[token.size() - 40] == 'A' ? 'B' : 'A';
  EXPECT_THAT(refusal(*keys, damaged), HasSubstr("its signature is wrong"));
  for (const char* text : {"", "a", "a.b", "a.b.c.d", "..", "a..c", "a b.c.d", "!.!.!"})
    EXPECT_FALSE(keys->claims_of(text).ok()) << text;
  for (size_t size = 0; size < token.size(); size += 7)
    EXPECT_FALSE(keys->claims_of(token.substr(0, size)).ok()) << size;
}

// A verifier that took the algorithm from the token would accept a token that the public key
// "signs", or one without a signature.
TEST(SignedTokens, OnlyAlgorithmsOfPublicKeysAreAccepted) {
  TestIssuer issuer;
  const auto keys = IssuerKeys::parse(issuer.key_set());
  ASSERT_TRUE(keys.ok()) << keys.status();
  const std::string claims = encoded(R"({"sub":"root"})");
  for (const char* alg : {"none", "None", "HS256", "HS512", "", "RS1"})
    EXPECT_THAT(refusal(*keys, absl::StrCat(encoded(absl::StrCat(R"({"alg":")", alg, R"("})")), ".",
                                            claims, ".", claims)),
                HasSubstr("its algorithm is"))
        << alg;
  EXPECT_THAT(refusal(*keys, absl::StrCat(encoded(R"({"alg":"RS256","crit":["exp"],"exp":1})"), ".",
                                          claims, ".", claims)),
              HasSubstr("critical extensions"));
  EXPECT_THAT(refusal(*keys, absl::StrCat(encoded("[]"), ".", claims, ".", claims)),
              HasSubstr("its header is no JSON object"));
  // The token of an EC key does not pass as that of an RSA key.
  EXPECT_TRUE(absl::IsNotFound(
      IssuerKeys::parse(kRfcKeys)->claims_of(issuer.sign({{"sub", "ann"}}, "RS256")).status()));
}

// Each further spelling would be another token for the memory of accepted tokens.
TEST(SignedTokens, OtherSpellingsOfASignatureAreRefused) {
  const auto keys = IssuerKeys::parse(kRfcKeys);
  ASSERT_TRUE(keys.ok()) << keys.status();
  const std::string token = kRfcToken;
  const std::string signed_part = token.substr(0, token.rfind('.') + 1);
  std::string signature;
  ASSERT_TRUE(absl::WebSafeBase64Unescape(token.substr(signed_part.size()), &signature));
  ASSERT_EQ(signature.size(), 64);
  const std::string r = signature.substr(0, 32);
  const std::string s = signature.substr(32);
  const std::string zeros(16, '\0');
  EXPECT_TRUE(keys->claims_of(signed_part + encoded(r + s)).ok());
  EXPECT_FALSE(keys->claims_of(signed_part + encoded(zeros + r + zeros + s)).ok());
  EXPECT_FALSE(keys->claims_of(signed_part + encoded(signature + "x")).ok());
  // The last of 86 characters has four bits beyond the bytes.
  std::string other_bits = token;
  other_bits.back() = 'R';
  EXPECT_FALSE(keys->claims_of(other_bits).ok());
  EXPECT_FALSE(keys->claims_of(token + "==").ok());
}

TEST(SignedTokens, ATokenOfAnotherTypeIsRefused) {
  const auto keys = IssuerKeys::parse(kRfcKeys);
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_THAT(
      refusal(*keys, absl::StrCat(encoded(R"({"alg":"ES256","typ":"logout+jwt"})"), ".e30.e30")),
      HasSubstr("its type is logout+jwt, not JWT"));
}

TEST(SignedTokens, AKeyThatTheIssuerDoesNotHaveIsNotFound) {
  TestIssuer issuer;
  TestIssuer other("later");
  const auto keys = IssuerKeys::parse(issuer.key_set());
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_TRUE(absl::IsNotFound(keys->claims_of(other.sign({{"sub", "ann"}}, "RS256")).status()));
}

TEST(SignedTokens, UnfitKeysAreSkipped) {
  const auto refused = [](const std::string& text) {
    return std::string(IssuerKeys::parse(text).status().message());
  };
  for (const char* text : {"", "[]", "{}", R"({"keys": 1})"})
    EXPECT_THAT(refused(text), HasSubstr("it is no JWK set")) << text;
  // A copy or a print of so deep a value would overflow the stack.
  EXPECT_THAT(refused(absl::StrCat(R"({"keys": [{"kty": "EC", "x": )", std::string(200'000, '['),
                                   std::string(200'000, ']'), "}]}")),
              HasSubstr("it is no JWK set"));
  for (const char* text :
       {R"({"keys": []})", R"({"keys": [1, {}, {"kty": "RSA"}]})",
        R"({"keys": [{"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ"}]})",
        R"({"keys": [{"kty": "RSA", "e": "AQAB", "n": "sXch3g"}]})"})
    EXPECT_THAT(refused(text), HasSubstr("it has no RSA key of at least 2048 bits")) << text;
  EXPECT_THAT(refused(absl::StrReplaceAll(kRfcKeys, {{R"("kty")", R"("use": "enc", "kty")"}})),
              HasSubstr("it has no RSA key"));
}

}  // namespace
}  // namespace muster::coordinator
