/* SPDX-License-Identifier: Apache-2.0
 *
 * See world.h.
 */
#include "world.h"

#include "must.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

struct world *world_new(void)
{
    struct world *world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    must(world != MAP_FAILED);
    return world;
}

int64_t boot_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

const char *what_text(enum what what)
{
    static const char *const texts[] = {
#define X(name, text) text,
        WHAT_MAP(X)
#undef X
    };
    return texts[what];
}

const char *violation_name(enum violation_kind kind)
{
    static const char *const names[] = {
#define X(name, text) #name,
        VIOLATION_MAP(X)
#undef X
    };
    return names[kind];
}

const char *violation_text(enum violation_kind kind)
{
    static const char *const texts[] = {
#define X(name, text) text,
        VIOLATION_MAP(X)
#undef X
    };
    return texts[kind];
}

/* ---- Calls ----------------------------------------------------------------------------------- */

struct call *call_begin(struct world *world, enum what what, int process, int thread, int lock)
{
    size_t index = atomic_fetch_add(&world->call_count, 1);
    must(index < CALLS_MAX);
    struct call *call = &world->calls[index];
    call->what = what;
    call->process = process;
    call->thread = thread;
    call->lock = lock;
    call->stalled_begin_ns = stalled_ns(world);
    call->begin_ns = boot_ns();
    return call;
}

void call_end(struct world *world, struct call *call, dlock_status status)
{
    int64_t now_ns = boot_ns();
    call->status = status;
    if (status != DLOCK_OK)
        snprintf(call->error, sizeof call->error, "%s", dlock_error());
    int64_t stalled = stalled_ns(world) - call->stalled_begin_ns;
    /* Negative if a stalled process was killed. */
    atomic_store(&call->stalled_ns, stalled > 0 ? stalled : 0);
    atomic_store(&call->end_ns, now_ns);
    atomic_fetch_add(&call->answers, 1);
}

#define BEAT_NS (8 * NS_A_MS) /* a beat is late after this time */

static int64_t late_ns(const struct witness *witness)
{
    int64_t beat_ns = atomic_load(&witness->beat_ns);
    int64_t late = beat_ns == 0 ? 0 : boot_ns() - beat_ns - BEAT_NS;
    return late > 0 ? late : 0;
}

void witness_beat(struct witness *witness)
{
    atomic_fetch_add(&witness->stalled_ns, late_ns(witness));
    atomic_store(&witness->beat_ns, boot_ns());
}

int64_t stalled_ns(const struct world *world)
{
    int64_t sum = atomic_load(&world->proxy.stalled_ns) + late_ns(&world->proxy);
    for (int i = 0; i < PROCESSES_MAX; i++) {
        const struct process *process = &world->processes[i];
        sum += atomic_load(&process->witness.stalled_ns);
        if (!atomic_load(&process->killed) && !atomic_load(&process->over))
            sum += late_ns(&process->witness);
    }
    return sum;
}

bool sample(struct call *call, const dlock_hold *hold)
{
    int64_t before_ns = boot_ns();
    int64_t left_ms = dlock_remaining_ms(hold);
    bool valid = dlock_valid(hold);
    int64_t after_ns = boot_ns();
    int64_t none = 0;
    if (!valid) {
        atomic_compare_exchange_strong(&call->false_ns, &none, after_ns);
        return false;
    }
    int64_t false_ns = atomic_load(&call->false_ns);
    if (false_ns != 0 && false_ns < before_ns)
        atomic_store(&call->revived, true);
    atomic_compare_exchange_strong(&call->first_true_ns, &none, after_ns);
    if (atomic_load(&call->last_true_ns) < before_ns)
        atomic_store(&call->last_true_ns, before_ns);
    if (left_ms != DLOCK_NEVER_EXPIRES &&
        atomic_load(&call->until_ns) < before_ns + left_ms * NS_A_MS)
        atomic_store(&call->until_ns, before_ns + left_ms * NS_A_MS);
    return true;
}

/* ---- Notes and violations -------------------------------------------------------------------- */

static struct note *note_begin(struct world *world, enum note_kind kind)
{
    size_t index = atomic_fetch_add(&world->note_count, 1);
    if (index >= NOTES_MAX)
        return NULL;
    struct note *written = &world->notes[index];
    /* Before the time, so that a stop between the two counts from this note on. */
    written->stalled_ns = stalled_ns(world);
    written->ns = boot_ns();
    written->kind = kind;
    return written;
}

void note_loss(struct world *world, int64_t from_ns, const char *what)
{
    struct note *written = note_begin(world, NOTE_DATA_LOST);
    must(written != NULL); /* the judge needs it */
    written->from_ns = from_ns;
    written->process = -1;
    snprintf(written->text, sizeof written->text, "%s", what);
    atomic_store(&written->written, true);
}

void note(struct world *world, enum note_kind kind, int process, struct call *call,
          const char *format, ...)
{
    va_list arguments;
    struct note *written = note_begin(world, kind);
    if (written == NULL)
        return;
    written->process = process;
    written->call = call;
    va_start(arguments, format);
    vsnprintf(written->text, sizeof written->text, format, arguments);
    va_end(arguments);
    atomic_store(&written->written, true);
}

void violation(struct world *world, enum violation_kind kind, const char *format, ...)
{
    size_t index = atomic_fetch_add(&world->violation_count, 1);
    atomic_fetch_add(&world->by_kind[kind], 1);
    if (index >= VIOLATIONS_MAX)
        return;
    struct violation *found = &world->violations[index];
    va_list arguments;
    found->kind = kind;
    va_start(arguments, format);
    vsnprintf(found->text, sizeof found->text, format, arguments);
    va_end(arguments);
}

/* ---- Numbers --------------------------------------------------------------------------------- */

uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t random_below(uint64_t *state, uint64_t limit)
{
    return random_next(state) % limit;
}

bool chance(uint64_t *state, int percent)
{
    return (int)random_below(state, 100) < percent;
}
