/* Reports the step, phase and collectives of one rank of your program to Muster, through the
 * progress page (version 4; layout: common/progress/progress_page.h). Muster then detects a hang by
 * the program's own step times, and names its rank and collective. C11 or C++, Linux, GCC or Clang.
 *
 *   muster_progress page;
 *   muster_progress_begin(&page);                 once, early
 *   muster_progress_phase(&page, MUSTER_LOAD);    reading the model
 *   for (;;) {
 *     muster_progress_phase(&page, MUSTER_STEP);
 *     ...
 *     muster_progress_step(&page, &(muster_step){.step = n, .loss = loss, .tokens = tokens});
 *   }
 *
 * A program is never considered hung until it has reported a phase or completed a step; from then
 * on Muster expects progress. Evaluation and checkpoints are phases with their own time budgets.
 *
 * In a process that Muster has not started, and in a child after fork(), every call does nothing.
 * All functions are thread-safe, do not block, and take well below a microsecond. The program, the
 * NCCL plugin and Python code of one process share one page: each writes its own fields.
 *
 * In strict C (-std=c11) include it first, or compile with -D_POSIX_C_SOURCE=200809L. */
#pragma once

#if defined(__STRICT_ANSI__) && !defined(__cplusplus) && !defined(_POSIX_C_SOURCE) && \
    !defined(_GNU_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if !defined(__linux__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "muster_progress.h is for Linux on little-endian processors"
#endif

/* clang-format off */
/* The program's current activity. The hang detector has a time limit for each phase. */
typedef enum {
  MUSTER_INIT, MUSTER_RENDEZVOUS, MUSTER_LOAD, MUSTER_COMPILE, MUSTER_DATA, MUSTER_STEP,
  MUSTER_EVAL, MUSTER_CHECKPOINT_SAVE, MUSTER_CHECKPOINT_RESTORE, MUSTER_SHUTDOWN
} muster_phase;

typedef enum {
  MUSTER_NO_COLLECTIVE, MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER,
  MUSTER_ALL_TO_ALL, MUSTER_BROADCAST, MUSTER_SEND, MUSTER_RECV, MUSTER_BARRIER, MUSTER_SEND_RECV
} muster_collective;
/* clang-format on */

typedef struct {
  unsigned char* bytes; /* the mapped page; NULL: no page */
  pid_t pid;            /* process that mapped the page */
  int64_t step_start_ns;
} muster_progress;

typedef struct {
  int64_t step; /* steps completed by the job */
  double loss;
  double grad_norm;
  double seconds;           /* duration; 0: time since the previous step or the end of a pause */
  double data_wait_seconds; /* part of `seconds` */
  double collective_wait_seconds; /* part of `seconds` */
  uint64_t tokens;                /* tokens of this rank in this step */
  double tflops_per_device;
  double learning_rate;
} muster_step;

/* clang-format off */
/* Byte offsets in the page. Offsets in a group: name 0, enqueued 56, started 64, completed 72,
 * bytes 80, kind 88, dtype 92, members 96, id 100. Offsets in a record of the ring: seq 0, group 8,
 * kind 12, bytes 16, enqueued_ns 24, completed_ns 32, name 40. */
enum {
  MUSTER_PAGE_BYTES = 8192, MUSTER_PAGE_VERSION = 4, MUSTER_GROUPS_MAX = 32,
  MUSTER_RING_LENGTH = 32, MUSTER_AT_VERSION = 8, MUSTER_AT_SEQUENCE = 16, MUSTER_AT_JOB = 24,
  MUSTER_AT_ATTEMPT = 32, MUSTER_AT_RANK = 36, MUSTER_AT_LOCAL_RANK = 40,
  MUSTER_AT_WORLD_SIZE = 44, MUSTER_AT_PID = 48, MUSTER_AT_PHASE = 52,
  MUSTER_AT_INCARNATION = 56, MUSTER_AT_START = 64, MUSTER_AT_PHASE_START = 72,
  MUSTER_AT_LAST_PROGRESS = 88, MUSTER_AT_STEP = 96, MUSTER_AT_LOSS = 104,
  MUSTER_AT_GRAD_NORM = 112, MUSTER_AT_STEP_SECONDS = 120, MUSTER_AT_STEP_EWMA = 128,
  MUSTER_AT_TOKENS = 136, MUSTER_AT_TFLOPS = 144, MUSTER_AT_LEARNING_RATE = 160,
  MUSTER_AT_CHECKPOINT_STEP = 168, MUSTER_AT_TOTAL_STEPS = 176, MUSTER_AT_GROUP_COUNT = 184,
  MUSTER_AT_RING_HEAD = 188, MUSTER_AT_GROUPS = 192, MUSTER_AT_RING = 3520,
  MUSTER_AT_STEP_COUNTS = 5824, MUSTER_AT_STEPS_SECONDS = 5952, MUSTER_AT_DATA_WAIT = 6008,
  MUSTER_AT_COLLECTIVE_WAIT = 6032, MUSTER_GROUP_BYTES = 104, MUSTER_GROUP_NAME_BYTES = 56,
  MUSTER_RECORD_BYTES = 72, MUSTER_RECORD_NAME_BYTES = 32
};
/* clang-format on */

static inline uint64_t muster_load64(const muster_progress* p, int at) {
  return __atomic_load_n((const uint64_t*)(const void*)(p->bytes + at), __ATOMIC_RELAXED);
}
static inline uint32_t muster_load32(const muster_progress* p, int at) {
  return __atomic_load_n((const uint32_t*)(const void*)(p->bytes + at), __ATOMIC_RELAXED);
}
static inline void muster_store64(muster_progress* p, int at, uint64_t value) {
  __atomic_store_n((uint64_t*)(void*)(p->bytes + at), value, __ATOMIC_RELAXED);
}
static inline void muster_store32(muster_progress* p, int at, uint32_t value) {
  __atomic_store_n((uint32_t*)(void*)(p->bytes + at), value, __ATOMIC_RELAXED);
}
static inline double muster_load_double(const muster_progress* p, int at) {
  const uint64_t bits = muster_load64(p, at);
  double value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}
static inline void muster_store_double(muster_progress* p, int at, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof(bits));
  muster_store64(p, at, bits);
}
/* Stores `name`, cut to `size` - 1 bytes, and NUL. Requires that `size` is a multiple of 8. */
static inline void muster_store_name(muster_progress* p, int at, int size, const char* name) {
  int ended = name == NULL;
  for (int i = 0; i < size; i += 8) {
    unsigned char chars[8] = {0};
    uint64_t word;
    for (int k = 0; k < 8 && !ended; ++k) {
      ended = i + k == size - 1 || name[i + k] == '\0';
      if (!ended) chars[k] = (unsigned char)name[i + k];
    }
    memcpy(&word, chars, sizeof(word));
    muster_store64(p, at + i, word);
  }
}
static inline int64_t muster_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The page's `sequence` is odd while a writer holds the lock: readers then retry, and other writers
 * wait. A writer holds it for nanoseconds; the constant bounds the wait for an interrupted one. */
enum { MUSTER_LOCK_TRIES_MAX = 10000 };

static inline uint64_t muster_lock(muster_progress* p) {
  uint64_t* sequence = (uint64_t*)(void*)(p->bytes + MUSTER_AT_SEQUENCE);
  uint64_t seen = __atomic_load_n(sequence, __ATOMIC_RELAXED);
  int tries = 0;
  for (;;) {
    const uint64_t mine = seen + 1 + (seen & 1);
    const int may_take = (seen & 1) == 0 || tries > MUSTER_LOCK_TRIES_MAX;
    if (may_take &&
        __atomic_compare_exchange_n(sequence, &seen, mine, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
      /* Later stores must not become visible before the odd number. */
      __atomic_thread_fence(__ATOMIC_RELEASE);
      return mine;
    }
    if (++tries % 100 == 0) sched_yield();
    seen = __atomic_load_n(sequence, __ATOMIC_RELAXED);
  }
}
static inline void muster_unlock(muster_progress* p, uint64_t mine) {
  __atomic_store_n((uint64_t*)(void*)(p->bytes + MUSTER_AT_SEQUENCE), mine + 1, __ATOMIC_RELEASE);
}

/* Returns whether calls write to the page. A child of fork() shares it, but is not the rank. */
static inline int muster_is_open(const muster_progress* p) {
  return p->bytes != NULL && p->pid == getpid();
}

static inline uint64_t muster_variable(const char* name) {
  const char* text = getenv(name);
  return text == NULL ? 0 : strtoull(text, NULL, 10);
}
static inline int muster_has_page(const muster_progress* p) {
  return memcmp(p->bytes, "MUSTPAGE", 8) == 0 &&
         muster_load32(p, MUSTER_AT_VERSION) == MUSTER_PAGE_VERSION;
}

/* Returns whether another living process of this rank owns the page. */
static inline int muster_is_taken(const muster_progress* p) {
  const pid_t owner = (pid_t)muster_load32(p, MUSTER_AT_PID);
  return muster_has_page(p) && owner != getpid() && owner > 0 &&
         (kill(owner, 0) == 0 || errno == EPERM);
}

static inline void muster_write_identity(muster_progress* p) {
  const uint64_t now = (uint64_t)muster_now_ns();
  uint64_t magic;
  for (int at = MUSTER_AT_JOB; at < MUSTER_PAGE_BYTES; at += 8) muster_store64(p, at, 0);
  muster_store64(p, MUSTER_AT_JOB, muster_variable("MUSTER_JOB"));
  muster_store32(p, MUSTER_AT_ATTEMPT, (uint32_t)muster_variable("MUSTER_ATTEMPT"));
  muster_store32(p, MUSTER_AT_RANK, (uint32_t)muster_variable("RANK"));
  muster_store32(p, MUSTER_AT_LOCAL_RANK, (uint32_t)muster_variable("LOCAL_RANK"));
  muster_store32(p, MUSTER_AT_WORLD_SIZE, (uint32_t)muster_variable("WORLD_SIZE"));
  muster_store32(p, MUSTER_AT_PID, (uint32_t)p->pid);
  muster_store64(p, MUSTER_AT_INCARNATION, muster_variable("MUSTER_INCARNATION"));
  muster_store64(p, MUSTER_AT_START, now);
  muster_store64(p, MUSTER_AT_PHASE_START, now);
  muster_store64(p, MUSTER_AT_LAST_PROGRESS, now);
  muster_store64(p, MUSTER_AT_STEP, (uint64_t)-1);
  muster_store64(p, MUSTER_AT_CHECKPOINT_STEP, (uint64_t)-1);
  muster_store64(p, MUSTER_AT_TOTAL_STEPS, (uint64_t)-1);
  muster_store64(p, MUSTER_AT_VERSION, MUSTER_PAGE_VERSION | (uint64_t)MUSTER_PAGE_BYTES << 32);
  memcpy(&magic, "MUSTPAGE", 8);
  muster_store64(p, 0, magic);
}

/* Opens this rank's page. Returns 0, or -1 with errno set; later calls then do nothing. ENOENT:
 * Muster has not started this process. EBUSY: another process of the rank owns the page. */
static inline int muster_progress_begin(muster_progress* p) {
  const char* path = getenv("MUSTER_PROGRESS_PAGE");
  p->bytes = NULL;
  p->pid = getpid();
  p->step_start_ns = muster_now_ns();
  errno = ENOENT;
  if (path == NULL || path[0] == '\0') return -1;
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  /* Makes a full disk an error here instead of a SIGBUS at the first store. */
  errno = posix_fallocate(fd, 0, MUSTER_PAGE_BYTES);
  void* memory = MAP_FAILED;
  if (errno == 0) memory = mmap(NULL, MUSTER_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) return -1;
  p->bytes = (unsigned char*)memory;
  const uint64_t mine = muster_lock(p);
  const int is_taken = muster_is_taken(p);
  const int is_ours = muster_has_page(p) && (pid_t)muster_load32(p, MUSTER_AT_PID) == p->pid;
  if (!is_taken && !is_ours) muster_write_identity(p);
  muster_unlock(p, mine);
  if (!is_taken) return 0;
  munmap(memory, MUSTER_PAGE_BYTES);
  p->bytes = NULL;
  errno = EBUSY;
  return -1;
}

/* Unmaps the page. Its file remains, because the worker reads it. */
static inline void muster_progress_end(muster_progress* p) {
  if (p->bytes != NULL) munmap(p->bytes, MUSTER_PAGE_BYTES);
  p->bytes = NULL;
}
static inline int muster_trains(uint32_t phase) {
  return phase == MUSTER_DATA || phase == MUSTER_STEP;
}
/* Requires the lock. */
static inline void muster_enter_phase(muster_progress* p, muster_phase phase, int64_t now) {
  const uint32_t before = muster_load32(p, MUSTER_AT_PHASE);
  if (before != (uint32_t)phase) {
    muster_store32(p, MUSTER_AT_PHASE, (uint32_t)phase);
    muster_store64(p, MUSTER_AT_PHASE_START, (uint64_t)now);
    /* A pause does not count as part of the next step. */
    if (!muster_trains(before) && muster_trains((uint32_t)phase)) p->step_start_ns = now;
  }
  muster_store64(p, MUSTER_AT_LAST_PROGRESS, (uint64_t)now);
}

static inline void muster_progress_phase(muster_progress* p, muster_phase phase) {
  if (!muster_is_open(p)) return;
  const uint64_t mine = muster_lock(p);
  muster_enter_phase(p, phase, muster_now_ns());
  muster_unlock(p, mine);
}

/* Returns the histogram bucket of a step's duration (common/progress/step_times.h). */
static inline int muster_step_bucket(double seconds) {
  static const double bounds[15] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
                                    2.5,   5,    10,    25,   50,  100,  250};
  int i = 0;
  while (i < 15 && bounds[i] < seconds) ++i;
  return i;
}
static inline double muster_sane_seconds(double seconds) {
  return seconds > 0 && seconds < 1e12 ? seconds : 0;
}
static inline void muster_add_seconds(muster_progress* p, int at, double seconds) {
  muster_store_double(p, at, muster_load_double(p, at) + muster_sane_seconds(seconds));
}

/* Reports a completed step. In a phase other than DATA or STEP, also enters STEP. */
static inline void muster_progress_step(muster_progress* p, const muster_step* step) {
  if (!muster_is_open(p)) return;
  const int64_t now = muster_now_ns();
  const uint64_t mine = muster_lock(p);
  double seconds = muster_sane_seconds(step->seconds);
  if (seconds == 0) seconds = (double)(now - p->step_start_ns) / 1e9;
  p->step_start_ns = now;
  if (!muster_trains(muster_load32(p, MUSTER_AT_PHASE))) muster_enter_phase(p, MUSTER_STEP, now);
  const double ewma = muster_load_double(p, MUSTER_AT_STEP_EWMA);
  const double newest = ewma == 0 ? seconds : ewma + 0.1 * (seconds - ewma);
  const int bucket = MUSTER_AT_STEP_COUNTS + 8 * muster_step_bucket(seconds);
  muster_store_double(p, MUSTER_AT_STEP_EWMA, newest);
  muster_store64(p, MUSTER_AT_STEP, (uint64_t)step->step);
  muster_store_double(p, MUSTER_AT_LOSS, step->loss);
  muster_store_double(p, MUSTER_AT_GRAD_NORM, step->grad_norm);
  muster_store_double(p, MUSTER_AT_STEP_SECONDS, seconds);
  muster_store64(p, bucket, muster_load64(p, bucket) + 1);
  muster_add_seconds(p, MUSTER_AT_STEPS_SECONDS, seconds);
  muster_add_seconds(p, MUSTER_AT_DATA_WAIT, step->data_wait_seconds);
  muster_add_seconds(p, MUSTER_AT_COLLECTIVE_WAIT, step->collective_wait_seconds);
  muster_store64(p, MUSTER_AT_TOKENS, muster_load64(p, MUSTER_AT_TOKENS) + step->tokens);
  muster_store_double(p, MUSTER_AT_TFLOPS, step->tflops_per_device);
  muster_store_double(p, MUSTER_AT_LEARNING_RATE, step->learning_rate);
  muster_store64(p, MUSTER_AT_LAST_PROGRESS, (uint64_t)now);
  muster_unlock(p, mine);
}

static inline void muster_set_word(muster_progress* p, int at, int64_t value) {
  if (!muster_is_open(p)) return;
  const uint64_t mine = muster_lock(p);
  muster_store64(p, at, (uint64_t)value);
  muster_unlock(p, mine);
}
/* Reports the job's total number of steps, for display. */
static inline void muster_progress_total_steps(muster_progress* p, int64_t steps) {
  muster_set_word(p, MUSTER_AT_TOTAL_STEPS, steps);
}
/* Reports the step of the newest complete checkpoint. */
static inline void muster_progress_checkpoint(muster_progress* p, int64_t step) {
  muster_set_word(p, MUSTER_AT_CHECKPOINT_STEP, step);
}

static inline int muster_group_at(int group) {
  return MUSTER_AT_GROUPS + group * MUSTER_GROUP_BYTES;
}

/* Registers a group of `members` ranks. `name`: for display ("data"); `id`: equal on its ranks, and
 * different for groups of the same name. Returns its index; -1: no page, or no room on it. */
static inline int muster_progress_group(muster_progress* p, const char* name, uint32_t members,
                                        uint32_t id) {
  int group = -1;
  if (!muster_is_open(p)) return -1;
  const uint64_t mine = muster_lock(p);
  const uint32_t count = muster_load32(p, MUSTER_AT_GROUP_COUNT);
  if (count < MUSTER_GROUPS_MAX) {
    group = (int)count;
    muster_store_name(p, muster_group_at(group), MUSTER_GROUP_NAME_BYTES, name);
    muster_store32(p, muster_group_at(group) + 96, members);
    muster_store32(p, muster_group_at(group) + 100, id);
    muster_store32(p, MUSTER_AT_GROUP_COUNT, count + 1);
  }
  muster_unlock(p, mine);
  return group;
}

/* Reports that the group's next collective was enqueued. Returns its number for the calls below; 0:
 * not recorded. `name`: for display, may be NULL; `dtype`: any number that distinguishes types. */
static inline uint64_t muster_progress_enqueued(muster_progress* p, int group,
                                                muster_collective kind, const char* name,
                                                uint64_t bytes, uint32_t dtype) {
  if (!muster_is_open(p) || group < 0 || group >= MUSTER_GROUPS_MAX) return 0;
  const uint64_t mine = muster_lock(p);
  const int at = muster_group_at(group);
  const uint64_t seq = muster_load64(p, at + 56) + 1;
  const uint32_t head = muster_load32(p, MUSTER_AT_RING_HEAD);
  const int record = MUSTER_AT_RING + (int)(head % MUSTER_RING_LENGTH) * MUSTER_RECORD_BYTES;
  muster_store64(p, at + 56, seq);
  muster_store64(p, at + 80, bytes);
  muster_store32(p, at + 88, (uint32_t)kind);
  muster_store32(p, at + 92, dtype);
  muster_store64(p, record, seq);
  muster_store32(p, record + 8, (uint32_t)group);
  muster_store32(p, record + 12, (uint32_t)kind);
  muster_store64(p, record + 16, bytes);
  muster_store64(p, record + 24, (uint64_t)muster_now_ns());
  muster_store64(p, record + 32, 0);
  muster_store_name(p, record + 40, MUSTER_RECORD_NAME_BYTES, name);
  muster_store32(p, MUSTER_AT_RING_HEAD, head + 1);
  muster_unlock(p, mine);
  return seq;
}

/* Requires the lock. */
static inline void muster_raise64(muster_progress* p, int at, uint64_t value) {
  if (muster_load64(p, at) < value) muster_store64(p, at, value);
}

/* Reports that the collective began to move data. */
static inline void muster_progress_started(muster_progress* p, int group, uint64_t seq) {
  if (!muster_is_open(p) || group < 0 || group >= MUSTER_GROUPS_MAX) return;
  const uint64_t mine = muster_lock(p);
  muster_raise64(p, muster_group_at(group) + 64, seq);
  muster_unlock(p, mine);
}

/* Reports that the collective completed on this rank. */
static inline void muster_progress_done(muster_progress* p, int group, uint64_t seq) {
  if (!muster_is_open(p) || group < 0 || group >= MUSTER_GROUPS_MAX || seq == 0) return;
  const uint64_t now = (uint64_t)muster_now_ns();
  const uint64_t mine = muster_lock(p);
  muster_raise64(p, muster_group_at(group) + 64, seq);
  muster_raise64(p, muster_group_at(group) + 72, seq);
  for (int i = 0; i < MUSTER_RING_LENGTH; ++i) {
    const int record = MUSTER_AT_RING + i * MUSTER_RECORD_BYTES;
    const int is_it =
        muster_load64(p, record) == seq && muster_load32(p, record + 8) == (uint32_t)group;
    if (is_it && muster_load64(p, record + 32) == 0) muster_store64(p, record + 32, now);
  }
  muster_store64(p, MUSTER_AT_LAST_PROGRESS, now);
  muster_unlock(p, mine);
}
