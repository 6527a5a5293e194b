/* A program that reports through muster_progress.h; writer.cc compiles it as C++, and writer.py does
 * the same in Python.
 *
 *   writer script    a few calls of each kind, then waits for the end of its input; exit code 3: no page
 *   writer race      steps whose figures follow from the step's number, until its input ends
 *   writer hold      stops in the middle of a change until its input ends */

/* clang-format off */
#include "progress/muster_progress.h"  /* first, as strict C needs it */
#include <poll.h>
#include <stdio.h>
#include <sys/wait.h>
/* clang-format on */

static void wait_for_the_end(void) {
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

static int has_input_ended(void) {
  struct pollfd input = {STDIN_FILENO, POLLIN, 0};
  return poll(&input, 1, 0) > 0;
}

static void complete(muster_progress* page, int64_t n, double seconds) {
  muster_step step;
  memset(&step, 0, sizeof(step));
  step.step = n;
  step.loss = 2.5 / (double)n;
  step.grad_norm = 0.75;
  step.seconds = seconds;
  step.data_wait_seconds = 0.125;
  step.collective_wait_seconds = 0.0625;
  step.tokens = 10;
  step.tflops_per_device = 400;
  step.learning_rate = 3e-5;
  muster_progress_step(page, &step);
}

static void follow_script(muster_progress* page) {
  int data, other;
  uint64_t seq;
  pid_t child;
  muster_progress again;
  muster_progress_phase(page, MUSTER_LOAD);
  muster_progress_total_steps(page, 100);
  complete(page, 1, 0.5);
  complete(page, 2, 0.25);
  data = muster_progress_group(page, "data", 4, 7);
  other = muster_progress_group(page, "a name that is far longer than the fifty-five bytes of room",
                                2, 8);
  seq = muster_progress_enqueued(page, data, MUSTER_ALL_REDUCE, "gradients", 1 << 20, 9);
  muster_progress_started(page, data, seq);
  muster_progress_done(page, data, seq);
  seq = muster_progress_enqueued(page, data, MUSTER_BARRIER, "", 0, 0);
  muster_progress_started(page, data, seq);
  muster_progress_enqueued(page, data, MUSTER_ALL_GATHER, "weights of every layer of the model", 64,
                           1);
  muster_progress_enqueued(page, other, MUSTER_SEND, NULL, 8, 2);
  muster_progress_checkpoint(page, 2);
  /* Another page of this process is the same one, and says nothing away. */
  if (muster_progress_begin(&again) == 0) muster_progress_phase(&again, MUSTER_EVAL);
  muster_progress_end(&again);
  child = fork();
  if (child == 0) {
    complete(page, 99, 1);
    _exit(0);
  }
  waitpid(child, NULL, 0);
}

int main(int argc, char** argv) {
  muster_progress page;
  int64_t n;
  if (argc < 2) return 2;
  if (muster_progress_begin(&page) != 0) {
    complete(&page, 5, 1); /* does nothing */
    return 3;
  }
  if (strcmp(argv[1], "script") == 0) {
    follow_script(&page);
    puts("ready");
    fflush(stdout);
    wait_for_the_end();
  }
  if (strcmp(argv[1], "hold") == 0) {
    const uint64_t mine = muster_lock(&page);
    puts("ready");
    fflush(stdout);
    wait_for_the_end();
    muster_unlock(&page, mine);
  }
  for (n = 1; strcmp(argv[1], "race") == 0 && (n % 64 != 0 || !has_input_ended()); ++n) {
    muster_step step;
    memset(&step, 0, sizeof(step));
    step.step = n;
    step.loss = (double)n;
    step.grad_norm = (double)(n + 1);
    step.tokens = 3;
    step.seconds = 1;
    muster_progress_step(&page, &step);
    if (n == 1) puts("ready"), fflush(stdout);
  }
  muster_progress_end(&page);
  return 0;
}
