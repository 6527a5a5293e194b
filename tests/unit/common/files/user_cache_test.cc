#include "common/files/user_cache.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace muster {
namespace {

// Sets a variable for the duration of a test; a null value removes it.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~Variable() { set(before_.empty() ? nullptr : before_.c_str()); }

 private:
  void set(const char* value) {
    if (value == nullptr)
      unsetenv(name_);
    else
      setenv(name_, value, 1);
  }
  const char* name_;
  std::string before_;
};

TEST(UserCacheFolder, IsBelowTheFirstVariableWithAnAbsolutePath) {
  const struct {
    const char *cache, *home, *folder;
  } kCases[] = {{"/c", "/h", "/c/muster"},      {nullptr, "/h", "/h/.cache/muster"},
                {"", "/h", "/h/.cache/muster"}, {"relative", "/h", "/h/.cache/muster"},
                {nullptr, nullptr, ""},         {nullptr, "relative", ""}};
  for (const auto& wanted : kCases) {
    const Variable cache("XDG_CACHE_HOME", wanted.cache), home("HOME", wanted.home);
    EXPECT_EQ(user_cache_folder(), wanted.folder);
  }
}

}  // namespace
}  // namespace muster
