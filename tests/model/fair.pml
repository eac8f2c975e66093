/* SPDX-License-Identifier: Apache-2.0
 *
 * The hand-off of rung `fair` (docs/design/fair.md), for spin; tests/model/run walks it.
 *
 * There is no time in here: whatever may happen at some moment may happen at any, as long as what
 * it needs came before. A waiter may poll whenever that changes something, a grant may run out
 * before it is claimed, a command may arrive when its sender is long gone. Hence a renewal is no
 * step of its own. The one assumption is the library's: a client stops believing in its hold before
 * the server lets it expire.
 *
 * CLIENTS       how many; each is one process with waiters of its own
 * SECTIONS      how many critical sections each of them wants
 * TROUBLES      how much may go wrong in a run, over all. Each run then ends, and there all who
 *               live must have been served, the lock be free and the queue empty
 * ENDLESS       instead: no bound on either, and who dies starts again
 * CALM          ENDLESS, and at some moment nothing goes wrong any more: from there on a client
 *               that waits is served (`served`, under weak fairness)
 * OTHER_SERVER  the stock is on another server than the lock
 * FORGETFUL     Redis may forget each key at any time: then two may believe, and the fence alone
 *               must hold
 * PLANT_*       a mistake, for the model to find
 */
#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef SECTIONS
#define SECTIONS 2
#endif
#ifndef TROUBLES
#define TROUBLES 2
#endif
#define IDS (CLIENTS + 1) /* nobody is 0 */
#define PLACES 2          /* sections in a row that need not ask Redis: tokens T and T+1 */

#ifdef CALM
#define ENDLESS
bool calm;
#define can_fail (!calm)
#else
#ifdef ENDLESS
#define can_fail true
#else
#define can_fail (troubles > 0)
#endif
#endif

#ifdef ENDLESS
#define fails()
#define wants_more(c) true
#define wants_less(c)
#define WAITING ASK   /* a hint may come at any time, */
#define heard(c) true /* so none is remembered */
#else
byte troubles = TROUBLES;
byte sections[IDS] = SECTIONS;
#define fails() troubles--
#define wants_more(c) (sections[c] > 0)
#define wants_less(c) sections[c]--
#define WAITING WAIT
#define heard(c) wake[c]
#endif

#ifdef PLANT_FENCE_OF_LAST_WRITER
#define FENCE_BY_ORDER
#endif
#ifdef OTHER_SERVER
#define FENCE_BY_ORDER
#endif

/* ---- What Redis knows ------------------------------------------------------------------------ */

byte owner;      /* 0: the lock is free */
bool held;       /* false: only granted */
byte lock_token;
byte newest;     /* the newest token given out */
bool blind;      /* and its key was lost */
chan queue = [CLIENTS + 1] of { byte };
bool wake[IDS];  /* a hint waits for the client */
byte mark;       /* of a stock that can't know the newest: the last token that it saw */
byte mark_place;

/* ---- What the clients know ------------------------------------------------------------------- */

mtype = { IDLE, ASK, WAIT, INSIDE, SENT, DONE, DEAD };
mtype = { NOTHING, ACQUIRE, RELEASE, LEAVE, WRITE };
mtype = { HAD, BUSY, GO_ON, LET_GO, NOT_MINE };

typedef message {
    mtype op = NOTHING;
    byte token;
    byte place;
    bool more;   /* of a release: the client has more waiters */
    bool writes; /* of a release: the section's write rides ahead of it */
    bool stale;  /* of a delayed one: see `stale` below */
    bool behind; /* of a delayed leave: its client has acquired since by a later try */
}

mtype at[IDS] = IDLE;
message sent[IDS];    /* on its way; DONE: carried out, the answer is on its way */
message delayed[IDS]; /* sent by a connection that broke: may still be carried out */
mtype answer[IDS];
byte token[IDS];      /* of the hold that the client has, or will hear of; 0: none */
byte place[IDS];      /* its section's place in the hold: that one's token is token + place */
bool over[IDS];       /* the hold's validity, counted from the send */
bool inside[IDS];     /* a section runs */
bool wrote[IDS];      /* it did what it had to */
bool unsure[IDS];     /* a write of the hold was not answered */

/* For the properties alone. */
bool has_read[IDS];   /* the section has read the stock, and not written yet */
bool stale[IDS];      /* and another's write was accepted since */
byte last;            /* the token of the section that began last */
byte last_place;

#define in_queue(c) (queue ?? [eval(c)])
#define at_head(c) (queue ? [eval(c)])
#define lock_for(c) (owner == 0 && (len(queue) == 0 || at_head(c)))
#define alive(c) (at[c] != DEAD)
#define waits(c) (alive(c) && (at[c] == WAIT || at[c] == ASK || sent[c].op == ACQUIRE))
#define believes(c) (token[c] != 0 && !over[c])

/* Scratch: no part of the state. */
hidden byte i;
hidden byte head;
hidden byte rank;
hidden byte used;
hidden byte accepted;
hidden mtype said; /* an operation's answer */

/* ---- Finitely many states for runs of any length --------------------------------------------- */

inline clear(it) {
    it.op = NOTHING; it.token = 0; it.place = 0;
    it.more = false; it.writes = false; it.stale = false; it.behind = false
}

/* An old token in a message passes no check any more. */
#ifdef FENCE_BY_ORDER
#define is_old(x) (x < mark)
#else
#define is_old(x) (x < newest)
#endif
inline forget_old_messages() {
    for (i : 1 .. CLIENTS) {
        sent[i].token = (is_old(sent[i].token) -> 0 : sent[i].token);
        delayed[i].token = (is_old(delayed[i].token) -> 0 : delayed[i].token);
        if
        :: delayed[i].op == WRITE && delayed[i].token == 0 -> clear(delayed[i])
        :: else
        fi
    }
}

/* What began last matters while somebody may begin with a token that is not newer. */
inline forget_last() {
    used = (last == newest);
    for (i : 1 .. CLIENTS) { used = used || (token[i] != 0 && token[i] <= last) }
    if
    :: used
    :: else -> last = 0; last_place = 0
    fi
}

/* Of tokens only the order matters: numbers that nobody has any more are taken out. */
#define lower(x) x = x - (x > rank -> 1 : 0)
inline renumber() {
    rank = newest;
    do
    :: rank <= 1 -> break
    :: else ->
        rank--;
        used = (lock_token == rank || mark == rank || last == rank);
        for (i : 1 .. CLIENTS) {
            used = used || token[i] == rank || sent[i].token == rank || delayed[i].token == rank
        }
        if
        :: used
        :: else ->
            lower(newest); lower(lock_token); lower(mark); lower(last);
            for (i : 1 .. CLIENTS) {
                lower(token[i]); lower(sent[i].token); lower(delayed[i].token)
            }
        fi
    od;
    rank = 0
}

/* ---- The operations: each is one step -------------------------------------------------------- */

inline give(client, is_held) {
    newest++;
    blind = false;
    owner = client;
    held = is_held;
    lock_token = newest
}

inline let_nobody_have_it() {
    owner = 0;
    held = false;
    lock_token = 0
}

inline grant_to_head() {
    if
    :: len(queue) > 0 ->
        queue ? head;
#ifdef PLANT_GRANT_KEEPS_TOKEN
        lock_token = newest; owner = head; held = false;
#else
        give(head, false);
#endif
#ifndef ENDLESS
        wake[head] = true;
#endif
        head = 0
    :: len(queue) == 0 -> let_nobody_have_it()
    fi
}

inline grant_if_free() {
    if
    :: owner == 0 && len(queue) > 0 -> grant_to_head()
    :: else
    fi
}

inline take_out(me) {
    if
    :: in_queue(me) -> queue ?? eval(me)
    :: !in_queue(me)
    fi
}

inline enqueue(me) {
#ifdef PLANT_QUEUED_TWICE
    queue ! me
#else
    if
    :: in_queue(me)
    :: !in_queue(me) -> queue ! me
    fi
#endif
}

inline acquire(me) {
    if
    :: owner == me && !held -> held = true; said = HAD /* the claim */
    :: owner == me && held -> /* its answer was lost */
#ifndef PLANT_SAME_TOKEN_AGAIN
        give(me, true);
#endif
        said = HAD
#ifdef PLANT_QUEUES_WITHOUT_LOOKING
    :: owner != me -> enqueue(me); said = BUSY
#else
    :: owner != me && lock_for(me) -> take_out(me); give(me, true); said = HAD
    :: owner != me && !lock_for(me) -> enqueue(me); grant_if_free(); said = BUSY
#endif
    fi
}

#ifdef PLANT_RELEASE_UNCHECKED
#define may_release(me, its) (owner != 0)
#else
#ifdef PLANT_RELEASE_BY_NAME
#define may_release(me, its) (owner == me)
#else
#define may_release(me, its) (owner == me && lock_token == its.token)
#endif
#endif

#ifdef PLANT_KEEPS_WHILE_IT_WANTS
#define goes_on(its) its.more
#else
#define goes_on(its) (its.more && len(queue) == 0)
#endif

inline release(me, its) {
    if
    :: may_release(me, its) && goes_on(its) -> give(me, true); said = GO_ON
    :: may_release(me, its) && !goes_on(its) ->
        grant_to_head();
        if
        :: its.more -> enqueue(me)
        :: else
        fi;
        said = LET_GO
    :: !may_release(me, its) -> grant_if_free(); said = NOT_MINE
    fi
}

#ifdef PLANT_LEAVE_FREES_HOLD
#define may_leave(me, its) (owner == me)
#else
#define may_leave(me, its) (owner == me && (!held || !its.behind))
#endif

/* It tells its client's last try: what a later one got is not let go of. */
inline leave(me, its) {
    take_out(me);
    if
    :: may_leave(me, its) -> grant_to_head()
    :: else -> grant_if_free()
    fi
}

/* A stock beside the lock takes a write only with the newest token given out. On another server it
 * can't know that one: there the read brings its token, too. */
#define not_older(its_token, its_place) \
    (its_token > mark || (its_token == mark && its_place >= mark_place))
#ifdef FENCE_BY_ORDER
#define fence_takes(its) not_older(its.token, its.place)
#else
#ifdef PLANT_BLIND_FENCE_TAKES_ALL
#define fence_takes(its) (blind || its.token == newest)
#else
#define fence_takes(its) (!blind && its.token == newest)
#endif
#endif

inline guarded_write(its, is_stale) {
    if
    :: fence_takes(its) ->
        assert(!is_stale); /* nothing was written since it read */
#ifdef FENCE_BY_ORDER
        mark = its.token;
        mark_place = its.place;
#endif
        for (i : 1 .. CLIENTS) {
            stale[i] = has_read[i];
            delayed[i].stale = (delayed[i].op == WRITE || delayed[i].writes)
        }
    :: else
    fi;
    is_stale = false
}

inline carry_out(me, its, is_stale) {
    said = 0;
    if
    :: its.op == WRITE || its.writes -> guarded_write(its, is_stale)
    :: else
    fi;
    if
    :: its.op == ACQUIRE -> acquire(me)
    :: its.op == RELEASE -> release(me, its)
    :: its.op == LEAVE -> leave(me, its)
    :: else
    fi;
    assert(its.op == WRITE || owner != 0 || len(queue) == 0); /* never free while one is queued */
    assert(owner == 0 || !in_queue(owner));                   /* who has it is not queued */
    assert(len(queue) <= CLIENTS);                            /* and nobody twice */
    forget_old_messages();
    forget_last();
    renumber()
}

/* ---- A client -------------------------------------------------------------------------------- */

inline send(me, what) {
    sent[me].op = what;
    at[me] = SENT
}

inline ask(me) {
    over[me] = false; /* validity counts from here */
    send(me, ACQUIRE)
}

inline forget_hold(me) {
    token[me] = 0; place[me] = 0;
    over[me] = false; unsure[me] = false
}

inline forget_section(me) {
    inside[me] = false; wrote[me] = false
}

inline forget_read(me) {
    has_read[me] = false; stale[me] = false
}

inline forget_sent(me) {
    clear(sent[me]);
    answer[me] = 0
}

inline begin_section(me) {
#ifndef FORGETFUL
    for (i : 1 .. CLIENTS) {
        assert(i == me || !(inside[i] && believes(i))); /* nobody else has reason to believe */
    }
    assert(token[me] > last || (token[me] == last && place[me] > last_place)); /* tokens grow */
#endif
    last = token[me];
    last_place = place[me];
    inside[me] = true;
    at[me] = INSIDE;
    wants_less(me)
}

inline begin_if_valid(me) {
#ifdef PLANT_VALID_FROM_ANSWER
    over[me] = false;
#endif
    if
    :: over[me] -> forget_hold(me); forget_read(me); at[me] = ASK
    :: else -> begin_section(me)
    fi
}

inline receive(me) {
    if
    :: answer[me] == HAD || answer[me] == GO_ON -> begin_if_valid(me)
    :: answer[me] == BUSY -> at[me] = WAITING
    :: answer[me] == LET_GO -> at[me] = (sent[me].more -> WAITING : IDLE)
    :: answer[me] == NOT_MINE -> at[me] = (sent[me].more -> ASK : IDLE)
    :: sent[me].op == LEAVE -> at[me] = IDLE
    :: sent[me].op == WRITE -> at[me] = INSIDE; wrote[me] = true
    fi;
    forget_sent(me)
}

/* The connection broke: nobody knows whether it was carried out. Who still wants the lock asks
 * again; a hold that was to be released is left to expire. */
inline not_answered(me) {
    if
    :: sent[me].op == WRITE -> at[me] = INSIDE; wrote[me] = true; unsure[me] = true
    :: sent[me].op == RELEASE && !sent[me].more -> forget_hold(me); at[me] = IDLE
    :: else -> forget_hold(me); at[me] = ASK
    fi;
    forget_read(me);
    forget_sent(me)
}

/* It will be carried out later. */
inline delay(me) {
    delayed[me].op = sent[me].op;
    delayed[me].token = sent[me].token;
    delayed[me].place = sent[me].place;
    delayed[me].more = sent[me].more;
    delayed[me].writes = sent[me].writes;
    delayed[me].stale = stale[me]
}

inline die(me) {
    forget_hold(me);
    forget_section(me);
    forget_read(me);
    forget_sent(me);
    at[me] = DEAD
}

#ifdef FENCE_BY_ORDER
#define place_told(me) place[me]
#else
#define place_told(me) 0 /* nobody looks at it */
#endif

inline write(me) {
    sent[me].token = token[me];
    sent[me].place = place_told(me);
    send(me, WRITE)
}

inline end_section(me, writes_now, has_more) {
    sent[me].token = token[me];
    sent[me].place = place_told(me);
    sent[me].writes = writes_now;
    sent[me].more = has_more;
    if
    :: writes_now
    :: else -> forget_read(me)
    fi;
    forget_hold(me);
    forget_section(me);
    send(me, RELEASE)
}

/* What was sent and not answered may come late, and the fence can't tell the sections of one hold
 * apart: the next one then needs a token from Redis. */
#ifdef PLANT_PASSED_ON_UNSURE
#define sure_enough(me) true
#else
#define sure_enough(me) (!unsure[me])
#endif
#define may_pass_on(me) (wrote[me] && !over[me] && place[me] + 1 < PLACES && sure_enough(me))

#ifdef PLANT_READ_COUNTS_WITHOUT_OK
#define read_may_ride(me) (sent[me].op == ACQUIRE)
#else
#define read_may_ride(me) (token[me] != 0)
#endif

#define poll_matters(me) (owner == me || owner == 0 || !in_queue(me))

proctype client(byte me) {
end:
    do
    /* Waiters come. A hint comes, and none is left. */
    :: d_step { at[me] == IDLE && wants_more(me) -> ask(me) }
    :: d_step { at[me] == IDLE && heard(me) -> wake[me] = false; send(me, LEAVE) }
    :: d_step { at[me] == ASK && wants_more(me) -> ask(me) }
    :: d_step { at[me] == ASK && !wants_more(me) -> send(me, LEAVE) }
    :: d_step { at[me] == WAIT && heard(me) -> wake[me] = false; ask(me) }
#ifndef PLANT_NEVER_ASKS_AGAIN
    :: d_step { at[me] == WAIT && poll_matters(me) -> ask(me) }
#endif
    /* The last waiter gives up. */
    :: d_step {
        (at[me] == WAIT || at[me] == ASK) && wants_more(me) && can_fail ->
        fails(); wants_less(me); send(me, LEAVE)
    }

    /* The section reads, writes, ends; it never looks whether it is still valid. */
#ifdef OTHER_SERVER
    :: d_step {
        at[me] == INSIDE && !wrote[me] && !has_read[me] && not_older(token[me], place[me]) ->
        mark = token[me]; mark_place = place[me]; has_read[me] = true
    }
    :: d_step {
        at[me] == INSIDE && !wrote[me] && !has_read[me] && !not_older(token[me], place[me]) ->
        wrote[me] = true /* refused */
    }
#else
    :: d_step { at[me] == INSIDE && !wrote[me] && !has_read[me] -> has_read[me] = true }
    :: d_step { at[me] == DONE && read_may_ride(me) && !has_read[me] -> has_read[me] = true }
#endif
    :: d_step { at[me] == INSIDE && !wrote[me] && has_read[me] -> write(me) }
    :: d_step {
        at[me] == INSIDE && wants_more(me) && may_pass_on(me) ->
        forget_section(me); place[me]++; begin_section(me)
    }
    :: d_step { at[me] == INSIDE -> end_section(me, false, false) }
    :: d_step { at[me] == INSIDE && wants_more(me) -> end_section(me, false, true) }
    :: d_step { at[me] == INSIDE && has_read[me] -> end_section(me, true, false) }
    :: d_step { at[me] == INSIDE && has_read[me] && wants_more(me) -> end_section(me, true, true) }
    :: d_step { /* what is known to be lost is not released */
        at[me] == INSIDE && over[me] ->
        forget_hold(me); forget_section(me); forget_read(me);
        at[me] = (wants_more(me) -> ASK : IDLE)
    }

    :: d_step {
        at[me] == SENT ->
        at[me] = DONE;
        carry_out(me, sent[me], stale[me]);
        answer[me] = said;
        if
        :: said == HAD && delayed[me].op == LEAVE -> delayed[me].behind = true
        :: else
        fi;
        if
        :: said == HAD || said == GO_ON -> token[me] = lock_token
        :: else
        fi;
        if
        :: sent[me].op == WRITE || sent[me].writes -> forget_read(me)
        :: else
        fi
    }
    :: d_step { at[me] == DONE -> receive(me) }

    /* The connection breaks: the command is lost, or late, or only its answer is lost. */
    :: d_step { at[me] == SENT && can_fail -> fails(); not_answered(me) }
    :: d_step {
        at[me] == SENT && delayed[me].op == NOTHING && can_fail ->
        fails(); delay(me); not_answered(me)
    }
    :: d_step { at[me] == DONE && can_fail -> fails(); not_answered(me) }
    :: d_step { /* a release may be sent again */
        at[me] == DONE && sent[me].op == RELEASE && can_fail ->
        fails(); forget_hold(me); forget_read(me); answer[me] = 0; sent[me].writes = false;
        at[me] = SENT
    }
    :: d_step {
        delayed[me].op != NOTHING ->
        carry_out(me, delayed[me], delayed[me].stale);
        clear(delayed[me])
    }

    /* It was paused, or could not renew. */
    :: d_step { believes(me) && can_fail -> fails(); over[me] = true }
#ifndef ENDLESS
    /* A hint is lost; one comes that means nothing. */
    :: d_step { wake[me] && can_fail -> fails(); wake[me] = false }
    :: d_step { !wake[me] && alive(me) && can_fail -> fails(); wake[me] = true }
#endif
    /* It is killed; what it sent may be carried out later. */
    :: d_step { alive(me) && can_fail -> fails(); die(me) }
    :: d_step {
        at[me] == SENT && delayed[me].op == NOTHING && can_fail ->
        fails(); delay(me); die(me)
    }
#ifdef ENDLESS
    /* Another process starts; its id is one that has left no trace. */
    :: d_step {
        at[me] == DEAD && owner != me && !in_queue(me) && delayed[me].op == NOTHING && can_fail ->
        at[me] = IDLE
    }
#endif
    od
}

/* ---- Time, and what else befalls Redis ------------------------------------------------------- */

#define somebody_waits (waits(1) || waits(2) || (CLIENTS > 2 && waits(CLIENTS)))

inline empty_queue() {
    do
    :: len(queue) > 0 -> queue ? head
    :: len(queue) == 0 -> break
    od;
    head = 0
}

proctype world() {
    byte c;
end:
    do
    /* A grant runs out: no trouble when nobody is there to claim it. */
    :: d_step { owner != 0 && !held && !waits(owner) -> let_nobody_have_it() }
    :: d_step { owner != 0 && !held && waits(owner) && can_fail -> fails(); let_nobody_have_it() }
    /* A hold expires, after its owner has stopped to believe in it. */
    :: d_step { owner != 0 && held && !believes(owner) -> let_nobody_have_it() }
    /* The queue expires: no trouble when nobody refreshes it. */
    :: d_step { len(queue) > 0 && !somebody_waits -> empty_queue() }
    :: d_step { len(queue) > 0 && somebody_waits && can_fail -> fails(); empty_queue() }
#ifdef FORGETFUL
    :: d_step { owner != 0 && can_fail -> fails(); let_nobody_have_it() }
    :: d_step { newest > 0 && !blind && can_fail -> fails(); blind = true }
#endif
#ifdef CALM
    :: d_step { !calm -> calm = true }
#endif
#ifndef ENDLESS
    :: timeout ->
        /* Nothing can happen any more: who lives was served, and nothing is left behind. */
        for (c : 1 .. CLIENTS) { assert(!alive(c) || (at[c] == IDLE && !wants_more(c))) }
        assert(owner == 0 && len(queue) == 0);
        break
#endif
    od
}

init {
    byte c;
    atomic {
        for (c : 1 .. CLIENTS) { run client(c) }
        c = 0;
        run world()
    }
}

#ifdef CALM
ltl served { [] ((calm && waits(1)) -> <> inside[1]) }
#endif
