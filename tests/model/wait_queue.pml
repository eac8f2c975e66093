/* SPDX-License-Identifier: Apache-2.0
 *
 * The waiters of one client of rung `fair` (docs/design/fair.md), for spin; tests/model/run walks
 * it. fair.pml has clients without waiters, this model has one client with its waiters and a Redis
 * of a few lines. Together they would have too many states: a waiter has eleven, so two waiters in
 * each of two clients would multiply the million states of fair.pml by up to 14,641. What fair.pml
 * takes for granted is asserted here: a client does not ask while it has the lock.
 *
 * Each step is what one thread does while it has the mutex, or what Redis does with one request.
 * A waiter may leave at any moment (its limit is over, it is cancelled): that is no trouble.
 *
 * WAITERS   how many threads want the lock
 * ROUNDS    how often each of them does
 * OTHERS    how often another client takes the lock
 * TROUBLES  how much may go wrong in a run, over all. Each run ends, and then every waiter is
 *           done, the wait queue is empty and the lock is free
 * PLANT_*   a mistake, for the model to find
 */
#ifndef WAITERS
#define WAITERS 3
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef OTHERS
#define OTHERS 2
#endif
#ifndef TROUBLES
#define TROUBLES 1
#endif
#define IDS (WAITERS + 1) /* nobody is 0 */

/* ---- What Redis knows ------------------------------------------------------------------------ */

mtype = { FREE, OURS, GRANTED, OTHERS_IT_IS };
mtype lock = FREE;
bool queued; /* this client is in the queue */

/* ---- What the client knows, all of it under the mutex ---------------------------------------- */

/* OUTSIDE: not in the wait queue. BEHIND: another waiter of the client asks Redis. TRYING: it is to
 * ask Redis. ASKED: Redis has answered. SLEEPING: it asked in vain. CHOSEN: the holder is about to
 * hand the lock to it. GIVEN: the holder has. HOLDS, RELEASING: it runs its critical section, ends
 * it. LEAVING: it asked Redis, and has decided to leave. LEFT: Redis has heard so. */
mtype = { OUTSIDE, BEHIND, TRYING, ASKED, SLEEPING, CHOSEN, GIVEN, HOLDS, RELEASING };
mtype = { LEAVING, LEFT };
mtype = { HAD, BUSY };

mtype state[IDS] = OUTSIDE;
mtype answer[IDS];
byte rounds[IDS] = ROUNDS;
byte chosen[IDS];    /* by this holder */
bool told[IDS];      /* its hold was lost, and it was told so */
bool undecided[IDS]; /* PLANT_LEAVING_IS_CHOSEN: it has decided to leave and not left yet */
chan line = [WAITERS + 1] of { byte };
byte contenders;     /* waiters that ask Redis, or the one that holds */
bool grant;         /* the client has the lock, as far as it knows */

byte troubles = TROUBLES;
byte others = OTHERS;
#define can_fail (troubles > 0)
#define fails() troubles--

hidden byte i;
hidden byte next;
hidden byte each;

#define in_line(w) (line ?? [eval(w)])
#define asks(w) (state[w] == TRYING || state[w] == ASKED || state[w] == SLEEPING)
#define has(w) (state[w] == ASKED || state[w] == CHOSEN || state[w] == GIVEN || \
                state[w] == HOLDS || state[w] == RELEASING)
#define any(what) \
    (what(1) || what(2) || (WAITERS > 2 && what(3)) || (WAITERS > 3 && what(WAITERS)))

inline take_out(w) {
    assert(in_line(w)); /* nobody is taken out twice */
    line ?? eval(w)
}

/* The first that waits behind another, in the order of the line. */
inline find_behind() {
    next = 0;
    for (i : 1 .. len(line)) {
        line ? each;
        line ! each;
        next = (next == 0 && state[each] == BEHIND -> each : next)
    }
    each = 0
}

inline move_up() {
    find_behind();
    if
    :: next != 0 && contenders == 0 -> contenders++; state[next] = TRYING
    :: else
    fi;
    next = 0
}

inline open_line() {
    assert(contenders > 0);
    contenders--;
    move_up()
}

inline check() {
    find_behind();
    assert(next == 0 || contenders == 1); /* nobody waits behind nobody */
    assert(contenders <= 1);
    next = 0
}

inline is_done(w) {
    state[w] = OUTSIDE;
    told[w] = false;
    answer[w] = 0;
    rounds[w]--
}

/* ---- A waiter -------------------------------------------------------------------------------- */

inline begin(w) {
    line ! w;
    if
    :: contenders == 0 -> contenders++; state[w] = TRYING
    :: else -> state[w] = BEHIND
    fi
}

#define has_lock(w) \
    ((state[w] == HOLDS && !told[w]) || state[w] == CHOSEN || state[w] == GIVEN || \
     state[w] == RELEASING)

inline ask_redis(w) {
    for (i : 1 .. WAITERS) { assert(!has_lock(i)) } /* two that ask would take each other's hold */
    if
    :: lock == FREE || lock == GRANTED -> lock = OURS; queued = false; answer[w] = HAD
    :: else -> queued = true; answer[w] = BUSY
    fi;
    state[w] = ASKED
}

inline receive(w) {
    if
    :: answer[w] == HAD -> take_out(w); grant = true; state[w] = HOLDS
    :: else -> state[w] = SLEEPING
    fi;
    answer[w] = 0
}

/* Its limit is over. It is out of the line in the same step, so that nobody can choose it. */
inline decide_to_leave(w) {
    if
    :: state[w] == BEHIND -> take_out(w); is_done(w)
    :: else -> take_out(w); state[w] = LEAVING
    fi
}

/* The old rule: whatever has become of it since it decided. */
inline leave_as_decided(w) {
    undecided[w] = false;
    if
    :: state[w] == GIVEN -> is_done(w)
    :: else -> decide_to_leave(w)
    fi
}

inline leave_queue() {
    find_behind();
    if
    :: next == 0 && queued -> queued = false
    :: next == 0 && lock == GRANTED -> lock = FREE
    :: else /* others of this client wait: the place in the queue is theirs */
    fi;
    next = 0
}

inline choose() {
    find_behind();
    if
    :: next != 0 -> take_out(next); state[next] = CHOSEN
    :: else
    fi
}

inline end_grant() {
    grant = false;
    open_line()
}

inline give(w) {
    assert(state[w] == CHOSEN); /* it is still there to have it */
    if
    :: lock == OURS && grant -> state[w] = GIVEN
    :: else -> state[w] = TRYING; line ! w
    fi
}

/* Redis hands the lock on, keeps it for this client, or frees it. */
inline let_go(w, others_wait) {
    find_behind();
    if
    :: lock != OURS -> end_grant(); is_done(w)
    :: lock == OURS && next != 0 && !others_wait -> state[w] = RELEASING /* kept */
    :: lock == OURS && next != 0 && others_wait ->
        lock = OTHERS_IT_IS; queued = true; end_grant(); is_done(w)
    :: lock == OURS && next == 0 ->
        lock = (others_wait -> OTHERS_IT_IS : FREE); end_grant(); is_done(w)
    fi;
    next = 0
}

/* What Redis kept for the waiters of this client. They may all have left since. */
inline take_kept(w) {
    choose();
    if
    :: next != 0 -> state[next] = GIVEN; is_done(w)
#ifdef PLANT_KEPT_FOR_NOBODY
    :: next == 0 -> is_done(w)
#else
    :: next == 0 -> state[w] = HOLDS /* released once more */
#endif
    fi;
    next = 0
}

proctype waiter(byte me) {
end:
    do
    :: d_step { state[me] == OUTSIDE && rounds[me] > 0 -> begin(me); check() }
    :: d_step { state[me] == TRYING -> ask_redis(me) }
    :: d_step { state[me] == ASKED -> receive(me); check() }
    :: d_step { state[me] == SLEEPING && (!queued || lock == FREE) -> state[me] = TRYING }

#ifdef PLANT_LEAVING_IS_CHOSEN
    :: d_step { state[me] == BEHIND && !undecided[me] -> undecided[me] = true }
    :: d_step { undecided[me] -> leave_as_decided(me); check() }
#else
    :: d_step { state[me] == BEHIND -> decide_to_leave(me); check() }
#endif
    :: d_step { state[me] == TRYING || state[me] == SLEEPING -> decide_to_leave(me); check() }
    :: d_step { state[me] == LEAVING -> leave_queue(); state[me] = LEFT }
    :: d_step { state[me] == LEAVING -> state[me] = LEFT } /* no server answers */
    :: d_step {
        state[me] == LEFT ->
        is_done(me);
#ifdef PLANT_LEAVES_NOBODY_IN_CHARGE
        contenders--;
#else
        open_line();
#endif
        check()
    }

    :: d_step { state[me] == GIVEN && !undecided[me] -> state[me] = HOLDS }
    /* The hold goes to the next waiter of this client: chosen first, given after a request. */
    :: d_step {
        state[me] == HOLDS && !told[me] && chosen[me] == 0 ->
        choose();
        chosen[me] = next;
        next = 0;
        check()
    }
    :: d_step {
        state[me] == HOLDS && chosen[me] != 0 ->
        give(chosen[me]);
        chosen[me] = 0;
        is_done(me);
        check()
    }
    /* Its turn is over, or no waiter of this client was there: released. */
    :: d_step { state[me] == HOLDS && !told[me] && chosen[me] == 0 -> let_go(me, false); check() }
    :: d_step {
        state[me] == HOLDS && !told[me] && chosen[me] == 0 && others > 0 ->
        others--;
        let_go(me, true);
        check()
    }
    :: d_step { state[me] == RELEASING -> take_kept(me); check() }
    /* The hold is lost, and the client learns it while the critical section runs. */
    :: d_step {
        state[me] == HOLDS && chosen[me] == 0 && !told[me] && lock == OURS && can_fail ->
        fails();
        lock = FREE;
        end_grant();
        told[me] = true;
        check()
    }
    :: d_step {
        state[me] == HOLDS && told[me] ->
#ifdef PLANT_LOSS_COUNTS_TWICE
        open_line();
#endif
        is_done(me);
        check()
    }
    od
}

/* ---- The other clients, and time ------------------------------------------------------------- */

proctype world() {
    byte w;
end:
    do
    :: d_step { lock == FREE && others > 0 -> others--; lock = OTHERS_IT_IS }
    :: d_step {
        lock == OTHERS_IT_IS ->
        lock = (queued -> GRANTED : FREE);
        queued = false
    }
    /* A grant runs out: no trouble when no waiter is there to claim it. */
    :: d_step { lock == GRANTED && !any(asks) -> lock = FREE }
    :: d_step { queued && !any(asks) && lock != OTHERS_IT_IS -> queued = false }
    /* A lock that no waiter has expires. A hold does, and the client has not learned it yet. */
    :: d_step { lock == OURS && !any(has) -> lock = FREE }
    :: d_step { lock == OURS && grant && can_fail -> fails(); lock = FREE }
    :: timeout ->
        for (w : 1 .. WAITERS) { assert(state[w] == OUTSIDE && rounds[w] == 0) }
        assert(lock == FREE && len(line) == 0 && contenders == 0);
        break
    od
}

init {
    byte w;
    atomic {
        for (w : 1 .. WAITERS) { run waiter(w) }
        w = 0;
        run world()
    }
}
