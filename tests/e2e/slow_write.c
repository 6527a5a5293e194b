/* A preloaded library that makes writes of checkpoint files slow: each write() to a *.safetensors file takes SLOW_WRITE_MS longer, and the
 * third one of a process PAUSED_WRITE_MS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

ssize_t write(int fd, const void *bytes, size_t count) {
  ssize_t (*next)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
  char link[64], path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  const char *ms = getenv("SLOW_WRITE_MS"), *pause = getenv("PAUSED_WRITE_MS");
  if (length > 0 && ms != NULL) {
    path[length] = '\0';
    if (strstr(path, ".safetensors") != NULL) {
      static atomic_int writes;
      const long delay = pause != NULL && atomic_fetch_add(&writes, 1) == 2 ? atol(pause) : atol(ms);
      const struct timespec time = {delay / 1000, delay % 1000 * 1000000};
      nanosleep(&time, NULL);
    }
  }
  return next(fd, bytes, count);
}
