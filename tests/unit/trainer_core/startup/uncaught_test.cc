#include "trainer_core/startup/uncaught.h"

#include <iostream>
#include <new>
#include <thread>

#include <gtest/gtest.h>

#include "common/process/exit_code.h"

namespace muster::trainer {
namespace {

struct TellsThatItUnwinds {
  ~TellsThatItUnwinds() { std::cerr << "unwound\n"; }
};

template <class Thrown>
void throw_on_a_thread(const Thrown& thrown) {
  end_at_uncaught_exceptions("muster-trainer");
  std::thread([&] {
    const TellsThatItUnwinds guard;
    throw thrown;
  }).join();
}

TEST(UncaughtDeathTest, TheProcessEndsAtOnceWithTheReason) {
  const auto failure = testing::ExitedWithCode(to_int(ExitCode::kFailure));
  EXPECT_EXIT(throw_on_a_thread(std::bad_alloc()), failure, "^muster-trainer: std::bad_alloc\n$");
  EXPECT_EXIT(throw_on_a_thread(7), failure, "^muster-trainer: an exception of an unknown kind\n$");
}

}  // namespace
}  // namespace muster::trainer
