/* SPDX-License-Identifier: Apache-2.0
 *
 * Several locks at once (dlock_acquire_many, docs/design/threads.md), for spin; tests/model/run
 * walks it. Each caller wants some of the locks, each of them alone or shared, once or more often.
 * A lock is only its owners here: other models say how one lock is acquired and lost.
 *
 * ROUNDS    how often each caller wants locks
 * TROUBLES  how much may go wrong in a run, over all: a caller gives up its wait, or a lock is lost.
 *           Each run ends: nobody waits for ever
 * MODES     locks may be wanted shared, too. A caller that wants a lock alone and waits keeps later
 *           ones out, also those that want it shared
 * PAIRS     each caller wants two of the locks
 * PLANT_*   a mistake, for the model to find
 */
#ifndef CALLERS
#define CALLERS 3
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef TROUBLES
#define TROUBLES 1
#endif
#define LOCKS 3
#define SETS 8 /* of locks: a bit for each */

byte owner[LOCKS]; /* has it alone; nobody is 0 */
byte troubles = TROUBLES;

#ifdef MODES
byte readers[LOCKS]; /* have it shared: a bit for each caller */
byte first[LOCKS];   /* wants it alone, and is the next; nobody is 0 */
#define me_of_readers (1 << me)
#define is_in(lock) (owner[lock] == me || (readers[lock] & me_of_readers) != 0)
#define has_none                                                                                   \
    (owner[0] != me && owner[1] != me && owner[2] != me &&                                         \
     ((readers[0] | readers[1] | readers[2]) & me_of_readers) == 0)
#define is_shared (shared >> at & 1)
#define is_free(lock)                                                                              \
    (owner[lock] == 0 && (first[lock] == 0 || first[lock] == me) &&                                \
     (is_shared || readers[lock] == 0))
#define enter(lock)                                                                                \
    if                                                                                             \
    :: is_shared -> readers[lock] = readers[lock] | me_of_readers                                  \
    :: else -> owner[lock] = me; leave_first(lock)                                                 \
    fi
#define leave_first(lock)                                                                          \
    if                                                                                             \
    :: first[lock] == me -> first[lock] = 0                                                        \
    :: else                                                                                        \
    fi
#define leave(lock)                                                                                \
    readers[lock] = readers[lock] & ~me_of_readers;                                                \
    if                                                                                             \
    :: owner[lock] == me -> owner[lock] = 0                                                        \
    :: else                                                                                        \
    fi
#else
#define is_in(lock) (owner[lock] == me)
#define has_none (owner[0] != me && owner[1] != me && owner[2] != me)
#define is_free(lock) (owner[lock] == 0)
#define enter(lock) owner[lock] = me
#define leave_first(lock) skip
#define leave(lock)                                                                                \
    if                                                                                             \
    :: owner[lock] == me -> owner[lock] = 0                                                        \
    :: else                                                                                        \
    fi
#endif

#define mine(set, lock) (((set) >> (lock) & 1) == 0 || is_in(lock))
#define has(set) (mine(set, 0) && mine(set, 1) && mine(set, 2))

#define at (down -> LOCKS - 1 - step : step)
#define skip_unwanted do :: step < LOCKS && (wanted >> at & 1) == 0 -> step++ :: else -> break od

proctype caller(byte me)
{
    byte rounds = ROUNDS, wanted, step;
#ifdef MODES
    byte shared; /* of these, the ones that it wants so */
#endif
    bool missing;
    bool down; /* the order in which the caller gave them */

    do
    :: rounds == 0 -> break
    :: rounds > 0 ->
        atomic {
            rounds--;
#ifdef PAIRS
            if
            :: wanted = 3
            :: wanted = 5
            :: wanted = 6
            fi;
#else
            select(wanted : 1 .. SETS - 1);
#endif
#ifdef MODES
            select(shared : 0 .. SETS - 1);
            shared = shared & wanted;
#endif
#ifdef PLANT_CALLERS_ORDER
            if
            :: down = false
            :: down = true
            fi;
#endif
            step = 0;
            skip_unwanted
        };
        do
        :: step == LOCKS || missing -> break
        :: atomic { step < LOCKS && !missing && is_free(at) -> enter(at); step++; skip_unwanted }
#ifdef MODES
        :: atomic { step < LOCKS && !missing && !is_free(at) && !is_shared && first[at] == 0 -> first[at] = me }
#endif
        :: atomic { step < LOCKS && !missing && troubles > 0 && !is_free(at) -> leave_first(at); troubles--; missing = true }
        od;
        atomic { /* the answer */
            if
            :: missing
#ifndef PLANT_LOST_COUNTS
            :: !missing && !has(wanted) -> missing = true
#endif
            :: else -> assert(has(wanted))
            fi;
            step = LOCKS
        };
        /* The critical section, if none is missing; then the releases, in reverse order. */
        do
        :: step == 0 -> break
#ifdef PLANT_KEEPS_WHAT_IT_HAS
        :: missing -> break
#endif
        :: atomic { step > 0 -> step--; leave(step) }
        od;
        atomic {
            assert(has_none);
            missing = false;
            wanted = 0;
#ifdef MODES
            shared = 0;
#endif
            down = false
        }
    od
}

/* A lock that somebody has expires, or is broken. */
active proctype loss()
{
end:
    do
    :: atomic { troubles > 0 && owner[0] != 0 -> owner[0] = 0; troubles-- }
    :: atomic { troubles > 0 && owner[1] != 0 -> owner[1] = 0; troubles-- }
    :: atomic { troubles > 0 && owner[2] != 0 -> owner[2] = 0; troubles-- }
#ifdef MODES
    :: atomic { troubles > 0 && readers[0] != 0 -> readers[0] = readers[0] & (readers[0] - 1); troubles-- }
    :: atomic { troubles > 0 && readers[1] != 0 -> readers[1] = readers[1] & (readers[1] - 1); troubles-- }
    :: atomic { troubles > 0 && readers[2] != 0 -> readers[2] = readers[2] & (readers[2] - 1); troubles-- }
#endif
    od
}

init
{
    byte i = 1;
    do
    :: i > CALLERS -> break
    :: else ->
        run caller(i);
        i++
    od
}
