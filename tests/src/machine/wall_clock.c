// The wall clock of a process under test, moved by as many seconds as a file says. Monotonic clocks are left alone, as they
// are where a machine's clock is set.
//
// Loaded before all libraries (LD_PRELOAD). WARMPATH_WALL_CLOCK names a file of eight bytes, a signed number in the machine's
// byte order. It stays mapped, so the clock jumps when the file is written to, and no call reads a file.
//
// The calls go to the kernel directly: an allocator may ask for the time before anything can be looked up.
//
// Not moved: waits for a moment of the wall clock inside the kernel.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead_s;

__attribute__((constructor)) static void map_the_file(void) {
  const char *path = getenv("WARMPATH_WALL_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) {
    return;
  }
  void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) {
    ahead_s = mapped;
  }
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  long result = syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && ahead_s && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    now->tv_sec += *ahead_s;
  }
  return (int)result;
}

int gettimeofday(struct timeval *now, void *zone) {
  struct timespec exact;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &exact) != 0) {
    return -1;
  }
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec exact;
  time_t now = clock_gettime(CLOCK_REALTIME, &exact) == 0 ? exact.tv_sec : (time_t)-1;
  if (out) {
    *out = now;
  }
  return now;
}
