/* SPDX-License-Identifier: Apache-2.0
 *
 * Redlock (docs/design/redlock.md): a lock on three servers of which two must grant it, its
 * renewal, and its token; for spin; tests/model/run walks it.
 *
 * Each server carries out one request at a time, and a client's requests reach the servers in any
 * order. There is no time in here. A server's key expires only after the validity of the hold that
 * counts on it, since validity is counted from before the first send. So a request that takes
 * longer than the time to live is the step `takes_too_long`.
 *
 * SECTIONS  how many critical sections each client wants
 * TROUBLES  how much may go wrong in a run, over all: an answer that is lost, a request that comes
 *           late, a holder that is too slow, a server that crashes or forgets
 * DELAYED   a server that crashed comes back, empty, after all validity that counts on it is over
 * EMPTY     a server is empty at once: it was restarted without its data, or its clock jumped. Two
 *           may hold then. No renewal may hide it, and tokens still tell them apart
 * PLANT_*   a mistake, for the model to find
 */
#ifndef SECTIONS
#define SECTIONS 1
#endif
#ifndef TROUBLES
#define TROUBLES 2
#endif
#define SERVERS 3
#define CLIENTS 2
#define GHOST (CLIENTS + 1) /* the name of an acquisition that is over */
#define SKEW 1         /* server 3's clock is behind the others' by so much */
#define AWAY (SKEW + 1) /* a server is away for longer than clocks are apart */

/* ---- What the servers know ------------------------------------------------------------------- */

byte key[SERVERS + 1];      /* whose; 0: there is none */
byte accepted[SERVERS + 1]; /* the newest token that it accepted */
bool down[SERVERS + 1];
byte now = SKEW + 1;
#define time_of(s) ((s) == 3 -> now - SKEW : now)

/* ---- What the clients know ------------------------------------------------------------------- */

mtype = { IDLE, ASK, TOKEN, HOLD, RELEASE };

mtype at[CLIENTS + 1] = IDLE;
byte asked[CLIENTS + 1]; /* a bit for each server: it was asked in this round, */
byte yes[CLIENTS + 1];   /* and has granted, or accepted */
byte heard[CLIENTS + 1]; /* it has answered in this round */
byte counts[CLIENTS + 1]; /* servers whose answers to a renewal count */
byte heals[CLIENTS + 1]; /* servers to which a request that sets the key is on its way */
byte seen[CLIENTS + 1];  /* the smallest token that may be accepted, as far as is known */
byte token[CLIENTS + 1];
byte proposals[CLIENTS + 1];
bool over[CLIENTS + 1];  /* validity is over */
byte sections[CLIENTS + 1] = SECTIONS;

byte troubles = TROUBLES;
#define can_fail (troubles > 0)
#define fails() troubles--

/* For the properties alone. */
byte relies[CLIENTS + 1];  /* servers on whose keys its validity relies */
bool excused[CLIENTS + 1]; /* a server has forgotten its key */
bool taken[CLIENTS + 1];   /* another was granted the lock since */
byte newest;               /* the newest token that counted */
byte above[CLIENTS + 1];   /* `newest` when this acquisition began */
short counted;             /* a bit for each token that counted */

#define other(c) (3 - (c))
#define bit(s) (1 << ((s) - 1))
#define all_servers 7
#define size(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1))
#define is_majority(set) (size(set) >= 2)
#define has_key(c, s) (!down[s] && key[s] == c)
#define has_key_on(c) ((has_key(c, 1) -> 1 : 0) | (has_key(c, 2) -> 2 : 0) | (has_key(c, 3) -> 4 : 0))
#define holds(c) ((at[c] == TOKEN || at[c] == HOLD) && !over[c])

hidden byte s;
hidden byte i;
hidden byte unanswered; /* servers whose answers to a renewal are late or lost */

inline raise_seen(c, at_least) {
    if
    :: seen[c] < (at_least) -> seen[c] = at_least
    :: else
    fi
}

inline begin_round(c) {
    asked[c] = 0; yes[c] = 0; heard[c] = 0
}

/* ---- Acquire --------------------------------------------------------------------------------- */

inline begin(c) {
    for (i : 1 .. SERVERS) {
        if
        :: key[i] == c -> key[i] = GHOST /* each acquisition has a name of its own */
        :: else
        fi
    }
    begin_round(c);
    counts[c] = 0; heals[c] = 0; seen[c] = 0; proposals[c] = 0;
    over[c] = false; excused[c] = false; taken[c] = false;
    above[c] = newest;
    sections[c]--;
    at[c] = ASK
}

inline set_if_free(c, s) {
    if
    :: key[s] == 0 -> key[s] = c
    :: else
    fi
}

/* A server that has no token, because it is new or has forgotten it, begins with its clock. */
inline begin_tokens(s) {
    if
#ifndef PLANT_FORGOTTEN_TOKEN_IS_ZERO
    :: accepted[s] == 0 -> accepted[s] = time_of(s)
#endif
    :: else
    fi
}

inline answer_acquire(c, s) {
    set_if_free(c, s);
    begin_tokens(s);
    heard[c] = heard[c] | bit(s);
    if
    :: key[s] == c -> yes[c] = yes[c] | bit(s)
    :: else
    fi;
    raise_seen(c, accepted[s] + 1)
}

#ifdef PLANT_MAJORITY_OF_REACHABLE
#define is_granted(c) (is_majority(yes[c]) || (asked[c] == all_servers && 2 * size(yes[c]) > size(heard[c])))
#else
#define is_granted(c) (is_majority(yes[c]))
#endif
#ifdef PLANT_VALID_FROM_ANSWER
#define is_too_late(c) false
#else
#define is_too_late(c) over[c]
#endif

inline begin_hold(c) {
    over[c] = false;
    counts[c] = yes[c];
    relies[c] = yes[c];
    assert(!holds(other(c)) || excused[other(c)] || excused[c]); /* two are inside */
    if
    :: is_majority(has_key_on(c)) && (at[other(c)] == TOKEN || at[other(c)] == HOLD) ->
        taken[other(c)] = true
    :: else
    fi;
    at[c] = TOKEN;
    token[c] = seen[c];
    begin_round(c)
}

/* ---- The token ------------------------------------------------------------------------------- */

#ifdef PLANT_ACCEPTS_SAME
#define is_acceptable(c, s) (token[c] >= accepted[s])
#else
#define is_acceptable(c, s) (token[c] > accepted[s])
#endif
#ifdef PLANT_TOKEN_OF_ONE_SERVER
#define is_accepted(c) (yes[c] != 0)
#else
#define is_accepted(c) (is_majority(yes[c]))
#endif

inline answer_proposal(c, s) {
    heard[c] = heard[c] | bit(s);
    begin_tokens(s);
    if
    :: is_acceptable(c, s) -> accepted[s] = token[c]; yes[c] = yes[c] | bit(s)
    :: else -> raise_seen(c, accepted[s] + 1)
    fi
}

inline count_token(c) {
    assert(!((counted >> token[c]) & 1)); /* no two have the same token */
    assert(token[c] > above[c]);          /* and later ones have larger ones */
    counted = counted | (1 << token[c]);
    if
    :: newest < token[c] -> newest = token[c]
    :: else
    fi;
    at[c] = HOLD
}

/* ---- Renewal --------------------------------------------------------------------------------- */

#define bit_if(condition, s) ((condition) -> bit(s) : 0)
#define answer(s) (!down[s] && !(unanswered & bit(s)))
#define said_yes(c) (has_key_on(c) & (all_servers ^ unanswered))
#define said_no(c) (bit_if(answer(1) && key[1] != c, 1) | bit_if(answer(2) && key[2] != c, 2) | \
                    bit_if(answer(3) && key[3] != c, 3))
#define said_none (bit_if(answer(1) && key[1] == 0, 1) | bit_if(answer(2) && key[2] == 0, 2) | \
                   bit_if(answer(3) && key[3] == 0, 3))
#ifdef PLANT_JOINS_AT_ONCE
#define renews(c) is_majority(said_yes(c))
#elif defined PLANT_RENEWS_WITH_ONE
#define renews(c) ((said_yes(c) & counts[c]) != 0)
#else
#define renews(c) is_majority(said_yes(c) & counts[c])
#endif
#ifdef PLANT_HEALS_WITHOUT_MAJORITY
#define may_heal(c) (said_yes(c) != 0)
#else
#define may_heal(c) renews(c)
#endif

/* A server that counts and says that it has not the key leaves those that count. Another joins them
 * once it has the key, if a majority of those that count says so in the same round. One that counts
 * and does not answer goes on counting: nothing that could set the key is on its way to it. */
inline renew(c, whose_answer_is_late) {
    unanswered = whose_answer_is_late;
    if
    :: may_heal(c) -> heals[c] = heals[c] | said_none
    :: else
    fi;
    if
    :: renews(c) ->
        assert(!taken[c]); /* a renewal is OK though the lock was lost */
        relies[c] = said_yes(c);
        counts[c] = (counts[c] | said_yes(c)) & (all_servers ^ said_no(c))
    :: else ->
#ifdef PLANT_HEALS_WITHOUT_MAJORITY
        skip
#else
        counts[c] = counts[c] & (all_servers ^ said_no(c))
#endif
    fi
}

/* ---- Release --------------------------------------------------------------------------------- */

inline answer_release(c, s) {
    heard[c] = heard[c] | bit(s);
    if
#ifdef PLANT_RELEASE_UNCHECKED
    :: key[s] != 0 -> key[s] = 0
#else
    :: key[s] == c -> key[s] = 0
#endif
    :: else
    fi
}

inline end_release(c) {
    for (i : 1 .. SERVERS) {
        assert(!(heard[c] & bit(i)) || key[i] != c); /* nothing is left where it was answered */
    }
    at[c] = IDLE
}

inline begin_release(c) {
    begin_round(c);
    heals[c] = 0;
#ifdef PLANT_RELEASES_WHERE_GRANTED
    asked[c] = all_servers ^ counts[c];
    heard[c] = asked[c];
#endif
    at[c] = RELEASE
}

/* ---- A client -------------------------------------------------------------------------------- */

#define may_ask(c, s) (!(asked[c] & bit(s)))
#define asks_now(c) (at[c] == ASK || at[c] == TOKEN || at[c] == RELEASE)

inline carry_out(c, s) {
    if
    :: at[c] == ASK -> answer_acquire(c, s)
    :: at[c] == TOKEN -> answer_proposal(c, s)
    :: at[c] == RELEASE -> answer_release(c, s)
    fi
}

/* The answer is lost. */
inline carry_out_unheard(c, s) {
    if
    :: at[c] == ASK -> set_if_free(c, s)
    :: at[c] == TOKEN && accepted[s] != 0 && is_acceptable(c, s) -> accepted[s] = token[c]
    :: at[c] == RELEASE && key[s] == c -> key[s] = 0
    :: else
    fi
}

inline ask(c, server) {
    s = server;
    asked[c] = asked[c] | bit(s);
    carry_out(c, s)
}

proctype client(byte c) {
end:
    do
    :: d_step { at[c] == IDLE && sections[c] > 0 -> begin(c) }

    /* A server answers, */
    :: d_step { asks_now(c) && may_ask(c, 1) && !down[1] -> ask(c, 1) }
    :: d_step { asks_now(c) && may_ask(c, 2) && !down[2] -> ask(c, 2) }
    :: d_step { asks_now(c) && may_ask(c, 3) && !down[3] -> ask(c, 3) }
    /* is down, */
    :: d_step { asks_now(c) && may_ask(c, 1) && down[1] -> asked[c] = asked[c] | 1 }
    :: d_step { asks_now(c) && may_ask(c, 2) && down[2] -> asked[c] = asked[c] | 2 }
    :: d_step { asks_now(c) && may_ask(c, 3) && down[3] -> asked[c] = asked[c] | 4 }
    /* or its answer is lost. */
    :: d_step {
        asks_now(c) && may_ask(c, 1) && !down[1] && can_fail ->
        fails(); asked[c] = asked[c] | 1; carry_out_unheard(c, 1)
    }
    :: d_step {
        asks_now(c) && may_ask(c, 3) && !down[3] && can_fail ->
        fails(); asked[c] = asked[c] | 4; carry_out_unheard(c, 3)
    }
    /* The acquire is not carried out yet, and may come late: while the hold lasts, because the
     * release follows it on the same connection. */
    :: d_step {
        at[c] == ASK && may_ask(c, 2) && !down[2] && can_fail ->
        fails(); asked[c] = asked[c] | 2; heals[c] = heals[c] | 2
    }
    :: d_step {
        at[c] == ASK && may_ask(c, 3) && !down[3] && can_fail ->
        fails(); asked[c] = asked[c] | 4; heals[c] = heals[c] | 4
    }

    /* A client that was granted the lock ends its round at once: what is late comes later. */
    :: d_step {
        at[c] == ASK && is_granted(c) && !is_too_late(c) ->
        heals[c] = heals[c] | (all_servers ^ asked[c]);
        begin_hold(c)
    }
    :: d_step {
        at[c] == ASK && asked[c] == all_servers && (!is_granted(c) || is_too_late(c)) ->
        begin_release(c)
    }

    :: d_step { at[c] == TOKEN && is_accepted(c) -> now++; count_token(c) }
    :: d_step {
        at[c] == TOKEN && asked[c] == all_servers && !is_accepted(c) && proposals[c] == 0 ->
        proposals[c]++;
        token[c] = seen[c];
        begin_round(c)
    }
    :: d_step {
        at[c] == TOKEN && asked[c] == all_servers && !is_accepted(c) && proposals[c] > 0 ->
        begin_release(c)
    }

    /* All that are up answer, or one is late. */
    :: d_step { at[c] == HOLD && !over[c] -> renew(c, 0) }
    :: d_step { at[c] == HOLD && !over[c] -> renew(c, 2) }
    :: d_step { at[c] == HOLD && !over[c] -> renew(c, 4) }
    :: d_step { (at[c] == HOLD || at[c] == TOKEN) && (heals[c] & 1) && !down[1] -> heals[c] = heals[c] & 6; set_if_free(c, 1) }
    :: d_step { (at[c] == HOLD || at[c] == TOKEN) && (heals[c] & 2) && !down[2] -> heals[c] = heals[c] & 5; set_if_free(c, 2) }
    :: d_step { (at[c] == HOLD || at[c] == TOKEN) && (heals[c] & 4) && !down[3] -> heals[c] = heals[c] & 3; set_if_free(c, 3) }
    :: d_step { at[c] == HOLD -> begin_release(c) }
    :: d_step { at[c] == RELEASE && asked[c] == all_servers -> end_release(c) }

    /* It takes longer than the time to live. */
    :: d_step { at[c] != IDLE && !over[c] && can_fail -> fails(); over[c] = true }
    od
}

/* ---- Time, and what befalls the servers ------------------------------------------------------ */

inline expire(server) {
    s = server;
    key[s] = 0
}

/* The latest renewal did not reach that server. */
#define is_left_out(s) (at[key[s]] == HOLD && !(relies[key[s]] & bit(s)))
#define may_expire(s) \
    (key[s] != 0 && (key[s] == GHOST || over[key[s]] || at[key[s]] == IDLE || is_left_out(s)))

/* Those who had its key do not know. */
inline forget(server) {
    s = server;
    if
    :: key[s] == 1 || key[s] == 2 ->
#ifndef PLANT_EMPTY_AT_ONCE
        excused[key[s]] = true;
#endif
        key[s] = 0
    :: else -> key[s] = 0
    fi
}

#define is_relied_on(s) (((at[1] == ASK && !over[1]) && (yes[1] & bit(s))) || (holds(1) && (relies[1] & bit(s))) || \
                         ((at[2] == ASK && !over[2]) && (yes[2] & bit(s))) || (holds(2) && (relies[2] & bit(s))))

proctype world() {
end:
    do
    :: d_step { may_expire(1) -> expire(1) }
    :: d_step { may_expire(2) -> expire(2) }
    :: d_step { may_expire(3) -> expire(3) }
#ifdef EMPTY
    :: d_step { can_fail && key[1] != 0 -> fails(); forget(1) }
    :: d_step { can_fail && key[2] != 0 -> fails(); forget(2); accepted[2] = 0; now = now + AWAY }
    :: d_step { can_fail && key[3] != 0 -> fails(); forget(3); accepted[3] = 0; now = now + AWAY }
#endif
#ifdef DELAYED
    :: d_step { can_fail && !down[2] -> fails(); down[2] = true; now = now + AWAY }
    :: d_step { down[2] && !is_relied_on(2) -> down[2] = false; key[2] = 0; accepted[2] = 0 }
    :: d_step { can_fail && !down[3] -> fails(); down[3] = true; now = now + AWAY }
    :: d_step { down[3] && !is_relied_on(3) -> down[3] = false; key[3] = 0; accepted[3] = 0 }
#endif
    od
}

init {
    atomic {
        run client(1);
        run client(2);
        run world()
    }
}
