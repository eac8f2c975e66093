/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded into a redis-server: makes its wall clock wrong. The first 8 bytes of the file
 * $CLOCK_JUMP are the error in microseconds. The test driver changes them, and so the clock jumps.
 * The functions make system calls: a server asks for the time before the dynamic linker can find
 * the functions that these replace.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define US_PER_S 1000000
#define NS_PER_US 1000

static const volatile int64_t none;
static const volatile int64_t *offset_us = &none;

__attribute__((constructor)) static void map_offset(void)
{
    const char *path = getenv("CLOCK_JUMP");
    int file = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *found = mmap(NULL, sizeof *offset_us, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED)
        offset_us = found;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    long failed = syscall(SYS_clock_gettime, clock, now);
    if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t us = now->tv_nsec / NS_PER_US + *offset_us % US_PER_S + US_PER_S;
        now->tv_sec += *offset_us / US_PER_S + us / US_PER_S - 1;
        now->tv_nsec = us % US_PER_S * NS_PER_US;
    }
    return (int)failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec found;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &found) != 0)
        return -1;
    *now = (struct timeval){.tv_sec = found.tv_sec, .tv_usec = found.tv_nsec / NS_PER_US};
    return 0;
}

time_t time(time_t *also)
{
    struct timespec found;
    if (clock_gettime(CLOCK_REALTIME, &found) != 0)
        return -1;
    if (also != NULL)
        *also = found.tv_sec;
    return found.tv_sec;
}
