/* SPDX-License-Identifier: Apache-2.0
 *
 * Several locks at once (dlock_acquire_many, docs/design/threads.md), for spin; tests/model/run
 * walks it. Each caller wants some of the locks, once or more often. A lock is only its owner here:
 * other models say how one lock is acquired and lost.
 *
 * ROUNDS    how often each caller wants locks
 * TROUBLES  how much may go wrong in a run, over all: a caller gives up its wait, or a lock is lost.
 *           Each run ends: nobody waits for ever
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

byte owner[LOCKS]; /* nobody is 0 */
byte troubles = TROUBLES;

#define mine(set, lock) (((set) >> (lock) & 1) == 0 || owner[lock] == me)
#define has(set) (mine(set, 0) && mine(set, 1) && mine(set, 2))
#define has_none (owner[0] != me && owner[1] != me && owner[2] != me)

#define at (down -> LOCKS - 1 - step : step)
#define skip_unwanted do :: step < LOCKS && (wanted >> at & 1) == 0 -> step++ :: else -> break od

proctype caller(byte me)
{
    byte rounds = ROUNDS, wanted, step;
    bool missing;
    bool down; /* the order in which the caller gave them */

    do
    :: rounds == 0 -> break
    :: rounds > 0 ->
        atomic {
            rounds--;
            select(wanted : 1 .. SETS - 1);
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
        :: atomic { step < LOCKS && !missing && owner[at] == 0 -> owner[at] = me; step++; skip_unwanted }
        :: atomic { step < LOCKS && !missing && troubles > 0 && owner[at] != 0 -> troubles--; missing = true }
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
        :: atomic { step > 0 -> step--; if :: owner[step] == me -> owner[step] = 0 :: else fi }
        od;
        atomic {
            assert(has_none);
            missing = false;
            wanted = 0;
            down = false
        }
    od
}

/* A lock that somebody has expires, or is broken. */
active proctype loss()
{
    byte lock;
end:
    do
    :: atomic {
        troubles > 0 && (owner[0] != 0 || owner[1] != 0 || owner[2] != 0) ->
            troubles--;
            if
            :: owner[0] != 0 -> owner[0] = 0
            :: owner[1] != 0 -> owner[1] = 0
            :: owner[2] != 0 -> owner[2] = 0
            fi
    }
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
