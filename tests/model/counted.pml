/* SPDX-License-Identifier: Apache-2.0
 *
 * Counted holds: the hash {owner: count} of `reentrant`, `watchdog` and `notify`
 * (docs/design/holds.md), for spin; tests/model/run walks it.
 *
 * Client 1 has the threads 1 and 2 under one named owner, so each may nest in the other's hold.
 * Client 2 has the thread 3. Thread 2 asks for a shorter time to live than the others.
 *
 * There is no time in here. A hold is `covered` while the key's life, as it was last set, ends
 * after the hold's validity. A key expires only after the validity of each covered hold. So
 * renewals are no step, except for the one that finds the hold lost.
 *
 * SECTIONS  how many critical sections each thread wants
 * TROUBLES  how much may go wrong in a run, over all. Each run ends, and then every thread that
 *           lives was served and the lock is free. A key expires only where the rules leave it to
 *           expire: its owner's name was abandoned, or its holder's validity is over
 * LATCHED   a release leaves its answer in a latch, as that of `notify` does. Without a latch a
 *           release that is sent again and finds nothing is OK: the first one may have freed it
 * EXCLUSION of a loss, only that it lets two in is held against the model
 * PLANT_*   a mistake, for the model to find
 */
#ifndef SECTIONS
#define SECTIONS 1
#endif
#ifndef TROUBLES
#define TROUBLES 2
#endif
#define THREADS 3
#define IDS (THREADS + 1) /* nobody is 0 */
#define NAMES_MAX 7

#ifdef PLANT_LATCH_SHARED
#define LATCHED
#endif

/* ---- What Redis knows ------------------------------------------------------------------------ */

byte k_client; /* 0: there is no key. Else its one field: the client ... */
byte k_name;   /* ... and the name make the owner */
byte k_count;
#ifdef LATCHED
byte latches[IDS]; /* a bit for each release of the thread that was carried out */
#define has_latch(me, its) ((latches[me] >> its.latch) & 1)
#define set_latch(me, its) latches[me] = latches[me] | (1 << its.latch)
#else
#define has_latch(me, its) false
#define set_latch(me, its)
#endif

/* ---- What the clients know ------------------------------------------------------------------- */

mtype = { IDLE, SENT, DONE, WAIT, LATE, DOUBT, HOLD, DEAD };
mtype = { NOTHING, ACQUIRE, RELEASE };
mtype = { HAD, BUSY, FREED, FREED_BEFORE, GONE };

typedef message {
    mtype op = NOTHING;
    byte name;
    byte depth;
#ifdef LATCHED
    byte latch;
#endif
}

mtype at[IDS] = IDLE;
message sent[IDS];    /* on its way; DONE: carried out, the answer is on its way */
message delayed[IDS]; /* sent by a connection that broke: may still be carried out */
bool fresh[IDS];      /* it belongs to the doubt that the thread has now */
mtype answer[IDS];
byte name[IDS];       /* of its acquisition; 0: none yet */
bool nested[IDS];     /* that is the name of another thread's hold */
bool again[IDS];      /* it need not wait for anything to ask again */
bool drops[IDS];      /* its release takes back an acquire, and has no hold */
bool has[IDS];        /* it has a hold */
bool over[IDS];       /* whose validity, counted from the send, is over */
byte sections[IDS] = SECTIONS;
#ifdef LATCHED
byte releases[IDS];   /* how many it has sent */
#endif
byte newest_name[3];
byte abandoned[3];    /* a bit for each name whose key is left to expire */
#ifdef PLANT_KILL_NOT_AWAITED
bool killing[IDS];
#endif

byte troubles = TROUBLES;
#define can_fail (troubles > 0)
#define fails() troubles--

/* For the properties alone. */
bool covered[IDS];    /* the key lives longer than this hold is valid */
bool lost[IDS];       /* Redis has forgotten the hold */
bool excused[IDS];    /* and the holder has had no answer since */

#define client_of(t) ((t) == 3 -> 2 : 1)
#define is_short(t) ((t) == 2)
#define same_owner(t, u) (client_of(t) == client_of(u) && name[t] == name[u])
#define is_mine(t) (k_client == client_of(t) && k_name == name[t])
#define is_valid(t) (has[t] && !over[t])
#ifdef PLANT_DOUBT_LETS_OTHERS_SEND
#define in_flight(t) (at[t] == SENT || at[t] == DONE)
#else
#define in_flight(t) (at[t] == SENT || at[t] == DONE || at[t] == DOUBT)
#endif
#define can_nest(me) ((me == 1 && is_valid(2)) || (me == 2 && is_valid(1)))
#ifdef PLANT_TWO_IN_FLIGHT
#define may_send(me) true
#else
#define may_send(me) (me == 3 || (me == 1 && !in_flight(2)) || (me == 2 && !in_flight(1)))
#endif
#ifdef PLANT_OVER_OVERTAKES
#define may_release(me) true
#else
#define may_release(me) may_send(me)
#endif
#define gets_hold(t) (at[t] == DONE && sent[t].op == ACQUIRE && answer[t] == HAD)

#ifdef EXCLUSION
#define must(condition) skip
#else
#define must(condition) assert(condition)
#endif

/* Scratch: no part of the state. */
hidden byte i;
hidden byte j;
hidden byte count;
hidden byte outer;
hidden mtype said;

/* ---- Redis: each script is one step ---------------------------------------------------------- */

/* A full time to live, by thread `me`. */
inline expire_later(me, client) {
    for (i : 1 .. THREADS) {
        if
        :: client_of(i) != client || name[i] != k_name
        :: client_of(i) == client && name[i] == k_name && (!is_short(me) || is_short(i)) ->
            covered[i] = true
        :: else ->
#ifdef PLANT_SHORTENS_LIFE
            covered[i] = false
#else
            skip
#endif
        fi
    }
}

inline set_key(client, its_name, its_count) {
    k_client = client;
    k_name = its_name;
    k_count = its_count
}

#ifdef PLANT_NESTED_CREATES
#define may_create(its) true
#else
#define may_create(its) (its.depth == 1)
#endif

#ifdef PLANT_RELATIVE_COUNTS
#define count_up(its) (k_count + 1)
#define count_down(its) (k_count - 1)
#else
#define count_up(its) its.depth
#define count_down(its) (its.depth - 1)
#endif

inline acquire(me, its) {
    if
    :: k_client == 0 && may_create(its) ->
        set_key(client_of(me), its.name, 1);
        expire_later(me, client_of(me));
        said = HAD
    :: k_client == client_of(me) && k_name == its.name ->
        k_count = count_up(its);
        expire_later(me, client_of(me));
        said = HAD
    :: k_client == 0 && !may_create(its) -> said = GONE
    :: k_client != 0 && !(k_client == client_of(me) && k_name == its.name) ->
        said = (its.depth == 1 -> BUSY : GONE)
    fi
}

inline release(me, its) {
    if
    :: has_latch(me, its) -> said = FREED_BEFORE
    :: !has_latch(me, its) && !(k_client == client_of(me) && k_name == its.name) -> said = GONE
    :: !has_latch(me, its) && k_client == client_of(me) && k_name == its.name ->
        k_count = count_down(its);
        if
        :: k_count == 0 -> set_key(0, 0, 0)
        :: else
        fi;
        set_latch(me, its);
        said = FREED
    fi
}

inline carry_out(me, its) {
    said = 0;
    if
    :: its.op == ACQUIRE -> acquire(me, its)
    :: its.op == RELEASE -> release(me, its)
    fi
}

/* ---- A client -------------------------------------------------------------------------------- */

inline clear(it) {
    it.op = NOTHING; it.name = 0; it.depth = 0;
#ifdef LATCHED
    it.latch = 0
#endif
}

inline abandon(me) {
    abandoned[client_of(me)] = abandoned[client_of(me)] | (1 << name[me])
}

inline take_name(me) {
#ifdef PLANT_NAME_AGAIN
    name[me] = 1;
#else
#ifdef PLANT_OLD_COUNT_COUNTS
    name[me] = newest_name[client_of(me)] + 1;
#else
    newest_name[client_of(me)]++;
    name[me] = newest_name[client_of(me)];
#endif
#endif
    assert(name[me] <= NAMES_MAX);
    nested[me] = false
}

/* How many other valid holds there are of this thread's owner. */
inline count_others(me) {
    count = 0;
    for (i : 1 .. THREADS) {
        count = count + (i != me && same_owner(i, me) && is_valid(i) -> 1 : 0)
    }
}

/* A valid hold of this owner is nested in, at each try. Else the name is the acquisition's own. */
inline name_it(me) {
    outer = 0;
    for (i : 1 .. THREADS) {
        outer = (i != me && client_of(i) == client_of(me) && is_valid(i) -> name[i] : outer)
    }
    if
    :: outer != 0 -> name[me] = outer; nested[me] = true
    :: outer == 0 && (name[me] == 0 || nested[me]) -> take_name(me)
    :: else
    fi;
    outer = 0
}

#ifdef LATCHED
/* A latch for each release, the same one when that is sent again. */
inline take_latch(me) {
#ifndef PLANT_LATCH_SHARED
    if
    :: sent[me].op == RELEASE -> releases[me]++
    :: else
    fi;
#endif
    sent[me].latch = releases[me];
    assert(releases[me] < 8)
}
#else
#define take_latch(me)
#endif

inline send(me, what) {
    count_others(me);
    sent[me].op = what;
    sent[me].name = name[me];
    sent[me].depth = count + 1;
    count = 0;
    take_latch(me);
    again[me] = false;
    at[me] = SENT
}

inline ask(me) {
    name_it(me);
    over[me] = false; /* validity counts from here */
    covered[me] = false; lost[me] = false; excused[me] = false;
    send(me, ACQUIRE)
}

inline forget_sent(me) {
    clear(sent[me]);
    answer[me] = 0
}

inline forget_hold(me) {
    has[me] = false; over[me] = false; covered[me] = false;
    lost[me] = false; excused[me] = false;
    name[me] = 0; nested[me] = false
}

inline end_call(me) {
    forget_hold(me);
    drops[me] = false;
    again[me] = false;
    sections[me]--;
    at[me] = IDLE
}

/* Asks once more, under a new name. */
inline try_again(me) {
#ifdef PLANT_LATE_ANSWER_KEEPS_NAME
    drops[me] = false;
#else
    forget_hold(me);
    drops[me] = false;
#endif
    again[me] = true;
    at[me] = WAIT
}

#define believes(t) (at[t] == HOLD && !over[t])
#define differ(t, u) (believes(t) && believes(u) && !same_owner(t, u))

/* No two are valid that must not be, unless one of them was lost and could not know it yet. */
inline check_exclusion() {
    assert(!differ(1, 2) || excused[1] || excused[2]);
    assert(!differ(1, 3) || excused[1] || excused[3]);
    assert(!differ(2, 3) || excused[2] || excused[3])
}

/* The server has answered that it knows this owner no more. */
inline lose_all(me) {
    for (i : 1 .. THREADS) {
        if
        :: i != me && has[i] && same_owner(i, me) ->
            excused[i] = false;
#ifndef PLANT_LOSS_TOLD_TO_ONE
            over[i] = true
#endif
        :: else
        fi
    }
}

inline begin_hold(me) {
    has[me] = true;
#ifdef PLANT_EXTENDS_BY_OWN_TTL
    for (i : 1 .. THREADS) { /* the others of the owner are valid as long as their own TTL says */
        covered[i] = covered[i] && !(i != me && is_short(me) && !is_short(i) && same_owner(i, me))
    }
#endif
    at[me] = HOLD;
    check_exclusion()
}

inline receive_acquire(me) {
    if
    :: answer[me] == HAD && !over[me] -> begin_hold(me)
    :: answer[me] == HAD && over[me] -> at[me] = LATE
    :: answer[me] == BUSY -> at[me] = WAIT
    :: answer[me] == GONE -> lose_all(me); check_exclusion(); end_call(me)
    fi
}

inline receive(me) {
    if
    :: sent[me].op == ACQUIRE -> receive_acquire(me)
    :: sent[me].op == RELEASE && drops[me] && over[me] -> try_again(me)
    :: sent[me].op == RELEASE && !(drops[me] && over[me]) -> end_call(me)
    fi;
    forget_sent(me)
}

/* ---- A doubt: the connection broke, and the command may have been carried out ---------------- */

inline not_answered(me) {
    answer[me] = 0;
    at[me] = DOUBT;
#ifdef PLANT_OLD_COUNT_COUNTS
    newest_name[client_of(me)]++ /* the next acquisition has a new name, this one keeps its own */
#endif
}

inline delay(me) {
    delayed[me].op = sent[me].op;
    delayed[me].name = sent[me].name;
    delayed[me].depth = sent[me].depth;
#ifdef LATCHED
    delayed[me].latch = sent[me].latch;
#endif
    fresh[me] = true
}

/* The same command, or the acquire counted anew. */
inline send_again(me) {
    fresh[me] = false;
    if
    :: sent[me].op == RELEASE -> at[me] = SENT
    :: else -> forget_sent(me); again[me] = true; at[me] = WAIT
    fi
}

/* The new connection has killed the old one, in the same server process. */
inline kill_broken_connection(me) {
    if
    :: fresh[me] -> clear(delayed[me])
    :: else
    fi;
    send_again(me)
}

/* An acquire that may still come goes on under a new name. Nothing else can create a key. */
inline live_with_doubt(me) {
    if
    :: sent[me].op == ACQUIRE && !nested[me] ->
        abandon(me);
#ifndef PLANT_DOUBTED_NAME_GOES_ON
        name[me] = 0
#endif
    :: else
    fi;
    send_again(me)
}

/* The waiter leaves, when its doubt was ended: what the acquire did is taken back. */
inline take_back(me) {
    if
    :: fresh[me] -> clear(delayed[me])
    :: else
    fi;
    fresh[me] = false;
    drops[me] = true;
    over[me] = false;
    send(me, RELEASE)
}

inline leave_in_doubt(me) {
    if
    :: !nested[me] -> abandon(me)
    :: else
    fi;
    fresh[me] = false;
    forget_sent(me);
    end_call(me)
}

inline die(me) {
    forget_sent(me);
    forget_hold(me);
    fresh[me] = false; drops[me] = false; again[me] = false;
    at[me] = DEAD
}

inline die_together(me) {
    abandoned[client_of(me)] = 255;
    if
    :: me == 3 -> die(3)
    :: else -> die(1); die(2)
    fi
}

#ifdef PLANT_LEAVES_IN_DOUBT
#define may_leave(me) true
#else
#define may_leave(me) (!again[me])
#endif
#define poll_matters(me) (again[me] || k_client == 0 || is_mine(me) || can_nest(me))

proctype thread(byte me) {
end:
    do
    :: d_step { at[me] == IDLE && sections[me] > 0 && may_send(me) -> ask(me) }
    :: d_step { at[me] == WAIT && poll_matters(me) && may_send(me) -> ask(me) }
    /* Its limit is over. */
    :: d_step { at[me] == WAIT && may_leave(me) && can_fail -> fails(); end_call(me) }

    :: d_step {
        at[me] == SENT ->
        at[me] = DONE;
        carry_out(me, sent[me]);
        answer[me] = said;
        if
        :: said == HAD && nested[me] -> /* never after the outer hold was lost */
            for (j : 1 .. THREADS) { must(!(has[j] && lost[j] && same_owner(j, me))) }
        :: said == FREED && has[me] && !over[me] -> must(!lost[me]) /* OK only if it was held */
        :: else
        fi
    }
    :: d_step { at[me] == DONE -> receive(me) }
    :: d_step { at[me] == LATE && may_send(me) -> drops[me] = true; send(me, RELEASE) }

    :: d_step { at[me] == HOLD && !over[me] && may_send(me) -> send(me, RELEASE) }
    /* What is known to be over is released as well: its key may live on for another hold's time. */
#ifdef PLANT_OVER_IS_NOT_RELEASED
    :: d_step { at[me] == HOLD && over[me] -> end_call(me) }
#else
    :: d_step { at[me] == HOLD && over[me] && may_release(me) -> send(me, RELEASE) }
#endif
    /* A renewal finds that the hold is lost. */
    :: d_step {
        at[me] == HOLD && lost[me] && !over[me] ->
        must(!is_mine(me)); /* and does not find a key that came back */
        over[me] = true;
        excused[me] = false;
        lose_all(me);
        check_exclusion()
    }

    /* The connection breaks: the command is lost, or late, or only its answer is lost. */
    :: d_step { at[me] == SENT && can_fail -> fails(); not_answered(me) }
    :: d_step {
        at[me] == SENT && delayed[me].op == NOTHING && can_fail ->
        fails(); delay(me); not_answered(me)
    }
    :: d_step { at[me] == DONE && can_fail -> fails(); not_answered(me) }
    :: d_step {
        delayed[me].op != NOTHING ->
        carry_out(me, delayed[me]);
        clear(delayed[me]);
        fresh[me] = false
    }

#ifdef PLANT_OLD_COUNT_COUNTS
    /* The count is read, and is the one that the acquire would have made. */
    :: d_step {
        at[me] == DOUBT && sent[me].op == ACQUIRE && is_mine(me) && k_count == sent[me].depth ->
        fresh[me] = false; at[me] = DONE; answer[me] = HAD
    }
#endif
#ifdef PLANT_KILL_NOT_AWAITED
    :: d_step { at[me] == DOUBT -> killing[me] = fresh[me]; send_again(me) }
    :: d_step { killing[me] -> killing[me] = false; clear(delayed[me]) }
#endif
    :: d_step { at[me] == DOUBT -> kill_broken_connection(me) }
#ifdef PLANT_KILL_TRUSTS_ANY_SERVER
    :: d_step { at[me] == DOUBT -> send_again(me) }
#else
    /* Another server process answers, the kill is refused, or nobody answers. */
    :: d_step { at[me] == DOUBT -> live_with_doubt(me) }
#endif
    /* The limit is over. */
    :: d_step {
        at[me] == DOUBT && sent[me].op == ACQUIRE && may_send(me) && can_fail ->
        fails(); take_back(me)
    }
    :: d_step {
        at[me] == DOUBT && sent[me].op == ACQUIRE && can_fail -> fails(); leave_in_doubt(me)
    }

    /* It was paused, or could not renew. */
    :: d_step {
        (is_valid(me) || (sent[me].op == ACQUIRE && at[me] != DOUBT && !over[me])) && can_fail ->
        fails(); over[me] = true
    }
    :: d_step { at[me] != DEAD && can_fail -> fails(); die_together(me) }
    od
}

/* ---- Time, and what else befalls Redis ------------------------------------------------------- */

#define to_end(t) (is_mine(t) && (has[t] || gets_hold(t)) && !over[t] && !excused[t])
#define in_release(t) (has[t] && at[t] != HOLD) /* the section is over */
#define deals_with(t) (is_mine(t) && at[t] != IDLE && at[t] != DEAD && !(has[t] && !over[t]))
#define is_abandoned ((abandoned[k_client] >> k_name) & 1)

/* Who had the lock until now has lost it. */
inline lose_key() {
    for (i : 1 .. THREADS) {
        if
        :: is_mine(i) && (has[i] || gets_hold(i)) -> lost[i] = true; excused[i] = !over[i]
        :: else
        fi
    }
    set_key(0, 0, 0)
}

inline expire() {
    /* No validity outlasts the key. */
    for (i : 1 .. THREADS) { assert(!to_end(i) || in_release(i)) }
    lose_key()
}

proctype world() {
    byte t;
end:
    do
    :: d_step {
        k_client != 0 && !(to_end(1) && covered[1]) && !(to_end(2) && covered[2]) &&
        !(to_end(3) && covered[3]) &&
        (is_abandoned || deals_with(1) || deals_with(2) || deals_with(3) ||
         to_end(1) || to_end(2) || to_end(3)) ->
        expire()
    }
    /* A break, or Redis comes back empty. */
    :: d_step { k_client != 0 && can_fail -> fails(); lose_key() }
    :: timeout ->
        for (t : 1 .. THREADS) { assert(at[t] == DEAD || (at[t] == IDLE && sections[t] == 0)) }
        assert(k_client == 0);
        break
    od
}

init {
    byte t;
    atomic {
        for (t : 1 .. THREADS) { run thread(t) }
        t = 0;
        run world()
    }
}
