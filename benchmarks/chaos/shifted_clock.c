/* Preloaded into a process, moves its wall clock by CLOCK_SHIFT_S seconds. Waits (the monotonic clock) stay true. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void) {
    const char *text = getenv("CLOCK_SHIFT_S");
    return text ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec real;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &real))
        return -1;
    now->tv_sec = real.tv_sec;
    now->tv_usec = real.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *to) {
    struct timespec real;
    clock_gettime(CLOCK_REALTIME, &real);
    if (to)
        *to = real.tv_sec;
    return real.tv_sec;
}
