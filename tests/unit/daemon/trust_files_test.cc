#include "daemon/trust_files.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>

#include "daemon/client_credentials.h"
#include "tests/unit/certificates.h"
#include "tests/unit/temp_folder.h"

namespace muster::daemon {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kToken = "0123456789abcdef";

class TrustFiles : public testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& bytes) {
    write_file(temp_.file(name), bytes);
    return temp_.file(name);
  }
  static std::string message(const absl::Status& status) { return std::string(status.message()); }

  TempFolder temp_;
  TestAuthority authority_;
};

TEST_F(TrustFiles, APairIsReadAsItIs) {
  const auto made = authority_.sign("DNS:localhost");
  const auto pair = read_key_pair(put("crt", made.certificate), put("key", made.key));
  ASSERT_TRUE(pair.ok()) << pair.status();
  EXPECT_EQ(pair->certificate, made.certificate);
  EXPECT_EQ(pair->key, made.key);
}

TEST_F(TrustFiles, ACertificateHasAValidity) {
  const auto made = authority_.sign("DNS:localhost");
  const auto validity = certificate_validity("--tls-cert", "tls.crt", made.certificate);
  ASSERT_TRUE(validity.ok()) << validity.status();
  EXPECT_EQ(validity->not_after_unix_s - validity->not_before_unix_s, 7200);
  EXPECT_LT(validity->not_before_unix_s, time(nullptr));
  EXPECT_GT(validity->not_after_unix_s, time(nullptr));
  EXPECT_FALSE(certificate_validity("--tls-cert", "tls.crt", "nothing").ok());
}

TEST_F(TrustFiles, AKeyOfAnotherCertificateIsRefused) {
  const auto made = authority_.sign("DNS:localhost");
  const auto other = authority_.sign("DNS:localhost");
  const auto pair = read_key_pair(put("crt", made.certificate), put("key", other.key));
  EXPECT_EQ(pair.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(message(pair.status()),
              AllOf(HasSubstr("--tls-key="), HasSubstr("the key is not that of --tls-cert=")));
}

TEST_F(TrustFiles, InvalidPemIsRefusedAndNotShown) {
  const auto made = authority_.sign("DNS:localhost");
  const std::string garbage = put("garbage", "secret garbage");
  EXPECT_THAT(message(read_certificates("--tls-ca", garbage).status()),
              AllOf(HasSubstr("--tls-ca=" + garbage), HasSubstr("no certificate"),
                    Not(HasSubstr("secret"))));
  EXPECT_THAT(message(read_key_pair(put("crt", made.certificate), garbage).status()),
              AllOf(HasSubstr("no private key"), Not(HasSubstr("secret"))));
  EXPECT_EQ(read_certificates("--tls-ca", temp_.file("none")).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_FALSE(read_certificates("--tls-ca", temp_.path()).ok()) << "a folder";
  EXPECT_THAT(
      message(read_certificates("--tls-ca", put("long", std::string(2 << 20, 'x'))).status()),
      HasSubstr("longer than"));
}

TEST_F(TrustFiles, TokensAreLines) {
  const auto tokens =
      read_tokens("--token-file",
                  put("tokens", "# the new one\nAAAAAAAAAAAAAAAAAAAA\r\n\n  0123456789abcdef \n"));
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_THAT(*tokens, ElementsAre("AAAAAAAAAAAAAAAAAAAA", kToken));
}

TEST_F(TrustFiles, AnInvalidTokenIsNamedByItsLine) {
  for (const char* text : {"short", "0123456789 abcdef", "0123456789abcd\x01\x02"}) {
    const auto tokens = read_tokens("--token-file", put("tokens", std::string("\n") + text));
    EXPECT_THAT(message(tokens.status()), AllOf(HasSubstr("line 2"), Not(HasSubstr(text))));
  }
  EXPECT_THAT(*read_tokens("--token-file", put("tokens", "# nothing\n")), testing::IsEmpty());
}

TEST_F(TrustFiles, AClientsFlagsContradictNothing) {
  EXPECT_TRUE(check_flags({}).ok());
  EXPECT_TRUE(check_flags({"a", "", "", "t"}).ok());
  EXPECT_THAT(message(check_flags({"", "", "", "t"})), HasSubstr("--token-file needs --tls-ca"));
  EXPECT_THAT(message(check_flags({"a", "c", "", ""})), HasSubstr("go together"));
  EXPECT_THAT(message(check_flags({"", "c", "k", ""})), HasSubstr("--tls-cert needs --tls-ca"));
}

TEST_F(TrustFiles, AClientSendsTheFirstTokenAsTheFilesAreNow) {
  const std::string lines = std::string(kToken) + "\nAAAAAAAAAAAAAAAAAAAA";
  const ClientTrust trust{put("ca", authority_.certificate()), "", "", put("token", lines)};
  auto secrets = read_secrets(trust);
  ASSERT_TRUE(secrets.ok()) << secrets.status();
  EXPECT_EQ(secrets->token, kToken);
  EXPECT_EQ(secrets->ca, authority_.certificate());
  put("token", "BBBBBBBBBBBBBBBBBBBB");
  EXPECT_EQ(read_secrets(trust)->token, "BBBBBBBBBBBBBBBBBBBB");
  put("token", "# nothing\n");
  EXPECT_THAT(message(read_secrets(trust).status()), HasSubstr("there is no token in it"));
  EXPECT_EQ(read_secrets({})->ca, "");
}

}  // namespace
}  // namespace muster::daemon
