/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock of `read_write` (docs/design/read_write.md), for spin; tests/model/run walks it.
 *
 * A client is one thread. It acquires, may nest once, and releases in any order. Its owner's name
 * is used for one outermost acquisition and what nests in it.
 *
 * There is no time in here. An owner's time in Redis ends only after the validity of its holds, if
 * that is `covered`: Redis' time was last set by a command that was sent after the one that the
 * validity counts from. A mark ends when its waiter is gone, an invitation when all invited are.
 * A message comes at once. A waiter may ask whenever that changes something, and need not by chance:
 * whoever may come in was told, or knows when what kept it out is over by time.
 *
 * CLIENTS     how many
 * SECTIONS    how many outermost acquisitions each of them wants
 * TROUBLES    how much may go wrong in a run, over all. Each run ends, and then every client that
 *             lives was served, and nothing is left in Redis. An owner's time ends only where the
 *             rules leave it to end: its name was abandoned, or its holder's validity is over
 * ONE_WRITER  the last client writes and the others read; ONE_READER is the reverse
 * ONE_NESTS   only the last client nests
 * CALM        no bound and no troubles: the last client is served (`served`, under weak fairness)
 * PLANT_*     a mistake, for the model to find
 */
#ifndef CLIENTS
#define CLIENTS 2
#endif
#ifndef SECTIONS
#define SECTIONS 1
#endif
#ifndef TROUBLES
#define TROUBLES 2
#endif
#define IDS (CLIENTS + 1) /* nobody is 0 */

#ifdef CALM
#define NAMES 1 /* no command is late: one name may do for all */
#define can_fail false
#define fails()
#define wants_more(c) true
#define wants_less(c)
#else
#define NAMES (SECTIONS + TROUBLES)
#define can_fail (troubles > 0)
#define fails() troubles--
#define wants_more(c) (sections[c] > 0)
#define wants_less(c) sections[c]--
byte troubles = TROUBLES;
byte sections[IDS] = SECTIONS;
#endif

#define may_read(c) true
#define may_write(c) true
#ifdef ONE_WRITER
#undef may_read
#undef may_write
#define may_read(c) (c != CLIENTS)
#define may_write(c) (c == CLIENTS)
#endif
#ifdef ONE_READER
#undef may_read
#undef may_write
#define may_read(c) (c == CLIENTS)
#define may_write(c) (c != CLIENTS)
#endif

#ifdef ONE_NESTS
#define may_nest(c) (c == CLIENTS && !nests[c])
#else
#define may_nest(c) (!nests[c])
#endif

/* A hold's number in its owner's list. */
#define OUTER_READ 1
#define OUTER_WRITE 2
#define INNER_READ 4
#define INNER_WRITE 8
#define WRITES (OUTER_WRITE | INNER_WRITE)
#define INNER (INNER_READ | INNER_WRITE)

/* ---- What Redis knows ------------------------------------------------------------------------ */

#define OWNERS (CLIENTS * NAMES)
byte list[OWNERS]; /* the holds of each owner; 0: it holds nothing */
short readers;     /* the marks of those that wait to read: a bit for each name */
short writers;
short invited;
byte holders;      /* how many owners hold it */
bool written;      /* and one of them writes */

/* ---- What the clients know ------------------------------------------------------------------- */

mtype = { IDLE, SENT, DONE, WAIT, LATE, DOUBT, HOLD, DEAD };
mtype = { NOTHING, ACQUIRE, RELEASE, GIVE_UP };
mtype = { HAD, BUSY, UPGRADE, FREED, GONE };

typedef message {
    mtype op = NOTHING;
    byte name;
    byte hold;
    bool outermost; /* an acquire's or a release's: its owner has no other hold */
}

mtype at[IDS] = IDLE;
message sent[IDS];    /* on its way; DONE: carried out, the answer is on its way */
message delayed[IDS]; /* sent by a connection that broke: may still be carried out */
bool fresh[IDS];      /* it belongs to the doubt that the client has now */
mtype answer[IDS];
byte name[IDS];       /* of its owner; 0: none */
byte newest_name[IDS];
byte wanted[IDS];     /* the hold that it asks for */
byte held[IDS];       /* the holds that it has */
bool over[IDS];       /* their validity, counted from the send, is over */
bool nests[IDS];      /* it has nested already */
bool again[IDS];      /* it need not wait for anything to ask again */
bool woken[IDS];      /* it waits, and was told to ask since it asked last */
bool knows_turn[IDS]; /* it waits, and asks when the readers' turn is over */
byte abandoned[IDS];  /* a bit for each name that is left to expire */

/* For the properties alone. */
bool covered[IDS];    /* Redis' time for the owner ends after the validity of its holds */
bool lost[IDS];       /* Redis has forgotten the owner */
bool excused[IDS];    /* and the client has had no answer since */

#define id_of(c, its_name) ((c - 1) * NAMES + its_name - 1)
#define bit_of(id) (1 << (id))
#define my_bit(c) (1 << id_of(c, name[c]))
#define believes(c) (held[c] != 0 && !over[c])
#define waits(c) (at[c] == WAIT || (sent[c].op == ACQUIRE && held[c] == 0))

/* Scratch: no part of the state. */
hidden byte i;
hidden byte id;
hidden byte rest;
hidden byte wrote;
hidden mtype said;

/* ---- Redis: each operation is one step ------------------------------------------------------- */

inline recount() {
    holders = 0;
    written = false;
    for (i : 0 .. OWNERS - 1) {
        holders = holders + (list[i] != 0 -> 1 : 0);
        written = written || (list[i] & WRITES) != 0
    }
    i = 0 /* a step can't end with a loop */
}

#define waits_to_write(c) (waits(c) && (wanted[c] & WRITES) != 0)
#define waits_to_read(c) (waits(c) && (wanted[c] & WRITES) == 0)

inline tell_readers() {
    for (i : 1 .. CLIENTS) { woken[i] = woken[i] || waits_to_read(i) }
    i = 0
}

/* One of each client's. */
inline tell_writers() {
    for (i : 1 .. CLIENTS) { woken[i] = woken[i] || waits_to_write(i) }
    i = 0
}

/* Who is about to sleep asks once more. */
inline tell_turn() {
#ifdef PLANT_TURN_UNTOLD
    i = 0
#else
    for (i : 1 .. CLIENTS) {
        woken[i] = woken[i] || (waits_to_write(i) && at[i] != WAIT);
        knows_turn[i] = knows_turn[i] || (waits_to_write(i) && at[i] == WAIT)
    }
    i = 0
#endif
}

/* Time that is over needs no message: whoever waits for it asks then. */
inline all_look() {
    for (i : 1 .. CLIENTS) { woken[i] = woken[i] || waits(i) }
    i = 0
}

inline end_turn() {
    for (i : 1 .. CLIENTS) {
        woken[i] = woken[i] || knows_turn[i];
        knows_turn[i] = false
    }
    i = 0;
    invited = 0
}

#ifdef PLANT_NO_INVITATION
#define turn_begins false
#else
#define turn_begins (wrote && readers != 0)
#endif
#ifdef PLANT_NO_WORD_IN_TURN
#define is_free (holders == 0 && invited == 0)
#else
#define is_free (holders == 0)
#endif

/* After a write the readers that wait come in before any writer. */
inline wake() {
    recount();
    if
    :: !written && turn_begins -> invited = readers; readers = 0; tell_readers(); tell_turn()
    :: !written && !turn_begins && writers != 0 && is_free -> tell_writers()
    :: !written && !turn_begins && writers == 0 -> tell_readers()
    :: else
    fi;
    wrote = false
}

#define is_in(set) ((set & bit_of(id)) != 0)
#define to_write(its) ((its.hold & WRITES) != 0)
#define let_in(its) \
    ((to_write(its) && holders == 0 && invited == 0) || \
     (!to_write(its) && !written && (writers == 0 || is_in(invited))))

#ifdef PLANT_HOLDER_WAITS_TOO
#define nests_freely(its) (list[id] != 0 && (to_write(its) || writers == 0))
#else
#define nests_freely(its) (list[id] != 0)
#endif
#define is_upgrade(its) (list[id] != 0 && to_write(its) && (list[id] & WRITES) == 0)

inline mark(its) {
    if
    :: to_write(its) ->
#ifndef PLANT_WRITER_LEAVES_NO_MARK
        writers = writers | bit_of(id)
#endif
    :: else -> readers = readers | bit_of(id)
    fi
}

inline take_marks_out() {
    readers = readers & ~bit_of(id);
    writers = writers & ~bit_of(id)
}

/* A full time for the owner. */
inline expire_later(c, its) {
    if
    :: name[c] == its.name ->
#ifdef PLANT_SHORTENS_TIME
        covered[c] = ((its.hold & INNER) == 0) /* the inner hold has a shorter time to live */
#else
        covered[c] = true
#endif
    :: else
    fi
}

inline acquire(c, its) {
#ifdef PLANT_FIRST_WIPES
    if
    :: its.outermost && (list[id] & its.hold) == 0 -> list[id] = 0; recount()
    :: else
    fi;
#endif
    if
#ifndef PLANT_NESTED_COMES_ANEW
    :: list[id] == 0 && !its.outermost -> said = GONE
#endif
#ifdef PLANT_UPGRADE_WAITS
    :: is_upgrade(its) -> writers = writers | bit_of(id); said = BUSY
#else
    :: is_upgrade(its) -> said = UPGRADE
#endif
    :: !is_upgrade(its) && (nests_freely(its) || (list[id] == 0 && let_in(its))) ->
        take_marks_out();
        if
        :: !to_write(its) -> invited = invited & ~bit_of(id)
        :: else
        fi;
        list[id] = list[id] | its.hold;
        recount();
        expire_later(c, its);
        said = HAD
    :: else -> mark(its); said = BUSY
    fi
}

#ifdef PLANT_COUNT_FOR_NUMBERS
#define is_listed(its) (list[id] != 0)
#define without(its) \
    ((list[id] & its.hold) != 0 -> list[id] & ~its.hold : list[id] & (list[id] - 1))
#else
#define is_listed(its) ((list[id] & its.hold) != 0)
#define without(its) (list[id] & ~its.hold)
#endif

inline release(c, its) {
    if
    :: is_listed(its) ->
        wrote = (list[id] & WRITES) != 0;
#ifdef PLANT_LAST_RELEASE_LEAVES_REST
        list[id] = without(its);
#else
        list[id] = (its.op == RELEASE && its.outermost -> 0 : without(its));
#endif
        wrote = wrote && (list[id] & WRITES) == 0;
        if
        :: wrote || list[id] == 0 || its.op == GIVE_UP -> wake()
        :: else -> recount()
        fi;
        said = FREED
    :: else ->
        if
        :: its.op == GIVE_UP -> wake()
        :: else
        fi;
        said = GONE
    fi
}

inline give_up(c, its) {
    take_marks_out();
    invited = invited & ~bit_of(id);
    release(c, its)
}

inline carry_out(c, its) {
    said = 0;
    id = id_of(c, its.name);
    if
    :: its.op == ACQUIRE -> acquire(c, its)
    :: its.op == RELEASE -> release(c, its)
    :: its.op == GIVE_UP -> give_up(c, its)
    fi;
    id = 0;
    for (i : 1 .. CLIENTS) { /* Redis knows each hold, unless it was lost */
        assert(!believes(i) || lost[i] ||
               (list[id_of(i, name[i])] & held[i]) == held[i])
    }
}

/* ---- A client -------------------------------------------------------------------------------- */

#define wants_to_write(c) ((wanted[c] & WRITES) != 0)
#define would_come_in(c) \
    (wants_to_write(c) -> holders == 0 && invited == 0 \
                        : !written && (writers == 0 || (invited & my_bit(c)) != 0))
#define is_about_to_ask(c) \
    (c <= CLIENTS && (at[c] == SENT || at[c] == DONE || at[c] == LATE || at[c] == DOUBT || \
                      (at[c] == WAIT && (woken[c] || again[c]))))
#ifdef CALM
#define somebody_asks true /* whether somebody waits for ever is what is looked for there */
#else
#define somebody_asks \
    (is_about_to_ask(1) || is_about_to_ask(2) || is_about_to_ask(3) || is_about_to_ask(4))
#endif

/* Unless somebody is about to ask, nobody sleeps who may come in. */
inline check_sleepers() {
    for (i : 1 .. CLIENTS) {
        assert(somebody_asks || at[i] != WAIT || held[i] != 0 || !would_come_in(i))
    }
    i = 0
}

inline clear(it) {
    it.op = NOTHING; it.name = 0; it.hold = 0; it.outermost = false
}

inline abandon(c) {
    abandoned[c] = abandoned[c] | (1 << name[c])
}

inline take_name(c) {
#ifdef PLANT_FIRST_WIPES
    name[c] = 1
#else
#ifdef CALM
    name[c] = 1
#else
    newest_name[c]++;
    name[c] = newest_name[c];
    assert(name[c] <= NAMES)
#endif
#endif
}

inline forget_told(c) {
    woken[c] = false; knows_turn[c] = false
}

inline send(c, what, its_hold) {
    forget_told(c);
    sent[c].op = what;
    sent[c].name = name[c];
    sent[c].hold = its_hold;
    sent[c].outermost = (held[c] == 0);
    again[c] = false;
    at[c] = SENT
}

inline ask(c) {
    if
    :: held[c] == 0 ->
        if
        :: name[c] == 0 -> take_name(c)
        :: else
        fi;
        over[c] = false; /* validity counts from here */
        covered[c] = false; lost[c] = false; excused[c] = false
    :: else
    fi;
    send(c, ACQUIRE, wanted[c])
}

inline want(c, its_hold) {
    wanted[c] = its_hold;
    ask(c)
}

inline nest(c, its_hold) {
    nests[c] = true;
    want(c, its_hold)
}

inline forget_sent(c) {
    clear(sent[c]);
    answer[c] = 0
}

inline forget_owner(c) {
    held[c] = 0; over[c] = false; covered[c] = false;
    lost[c] = false; excused[c] = false;
    name[c] = 0
}

inline end_section(c) {
    forget_owner(c);
    wanted[c] = 0;
    nests[c] = false;
    again[c] = false;
    wants_less(c);
    at[c] = IDLE
}

/* The call for an inner or an outer hold is over. */
inline end_call(c) {
    wanted[c] = 0;
    if
    :: held[c] != 0 -> at[c] = HOLD
    :: else -> end_section(c)
    fi
}

#define writes(c) ((held[c] & WRITES) != 0)
#define differ(c, d) (believes(c) && believes(d) && (writes(c) || writes(d)))

/* No two are valid that must not be, unless one of them was lost and could not know it yet. */
inline check_exclusion(c) {
    for (i : 1 .. CLIENTS) { assert(i == c || !differ(c, i) || excused[c] || excused[i]) }
}

inline receive_acquire(c) {
    if
    :: answer[c] == HAD && !over[c] ->
        held[c] = held[c] | sent[c].hold;
        check_exclusion(c);
        end_call(c)
    :: answer[c] == HAD && over[c] -> at[c] = LATE
    :: answer[c] == BUSY -> at[c] = WAIT
    :: answer[c] == UPGRADE -> end_call(c)
    :: answer[c] == GONE -> end_section(c) /* the owner has lost all its holds */
    fi
}

inline receive(c) {
    if
    :: sent[c].op == ACQUIRE -> receive_acquire(c)
    :: sent[c].op == RELEASE -> end_call(c)
    :: sent[c].op == GIVE_UP && over[c] && held[c] == 0 -> /* once more, under a new name */
        forget_owner(c); again[c] = true; at[c] = WAIT
    :: sent[c].op == GIVE_UP && !(over[c] && held[c] == 0) -> end_call(c)
    fi;
    forget_sent(c);
    if
    :: at[c] != WAIT -> forget_told(c)
    :: else
    fi;
    check_sleepers()
}

#define may_release(c, its_hold) (at[c] == HOLD && (held[c] & its_hold) != 0)
inline release_one(c, its_hold) {
    held[c] = held[c] & ~its_hold;
    send(c, RELEASE, its_hold)
}

/* ---- A doubt: the connection broke, and the command may have been carried out ---------------- */

inline not_answered(c) {
    answer[c] = 0;
    at[c] = DOUBT
}

inline delay(c) {
    delayed[c].op = sent[c].op;
    delayed[c].name = sent[c].name;
    delayed[c].hold = sent[c].hold;
    delayed[c].outermost = sent[c].outermost;
    fresh[c] = true
}

inline send_again(c) {
    fresh[c] = false;
    if
    :: sent[c].op == ACQUIRE -> forget_sent(c); again[c] = true; at[c] = WAIT
    :: else -> at[c] = SENT
    fi
}

/* The new connection has killed the old one, in the same server process. */
inline kill_broken_connection(c) {
    if
    :: fresh[c] -> clear(delayed[c])
    :: else
    fi;
    send_again(c)
}

/* A first acquire that may still come goes on under a new name. */
inline live_with_doubt(c) {
    if
    :: sent[c].op == ACQUIRE && held[c] == 0 -> abandon(c); name[c] = 0
    :: else
    fi;
    send_again(c)
}

inline take_back(c) {
    if
    :: fresh[c] -> clear(delayed[c])
    :: else
    fi;
    fresh[c] = false;
    send(c, GIVE_UP, wanted[c])
}

/* Nobody takes it back. */
inline leave_in_doubt(c) {
    abandon(c);
    fresh[c] = false;
    forget_sent(c);
    end_call(c);
    forget_told(c);
    check_sleepers()
}

inline die(c) {
    forget_sent(c);
    forget_owner(c);
    wanted[c] = 0; nests[c] = false; again[c] = false; fresh[c] = false;
    abandoned[c] = 255;
    forget_told(c);
    at[c] = DEAD;
    check_sleepers()
}

#define has_mark(c) (((readers | writers | invited) & my_bit(c)) != 0)
#define has_list(c) (list[id_of(c, name[c])] != 0)
#define poll_matters(c) \
    (again[c] || woken[c] || name[c] == 0 || \
     (held[c] == 0 -> has_list(c) || !has_mark(c) || would_come_in(c) \
                    : !has_list(c) || !has_mark(c) || writers == 0))

#define may_be_over(c) \
    (!over[c] && at[c] != DOUBT && \
     (held[c] != 0 || sent[c].op == ACQUIRE || sent[c].op == RELEASE))

proctype client(byte me) {
end:
    do
    :: d_step { at[me] == IDLE && wants_more(me) && may_read(me) -> want(me, OUTER_READ) }
    :: d_step { at[me] == IDLE && wants_more(me) && may_write(me) -> want(me, OUTER_WRITE) }
    :: d_step { at[me] == HOLD && may_nest(me) && may_read(me) -> nest(me, INNER_READ) }
    :: d_step { at[me] == HOLD && may_nest(me) && may_write(me) -> nest(me, INNER_WRITE) }
    :: d_step { at[me] == WAIT && poll_matters(me) -> ask(me) }
    /* The limit is over. */
    :: d_step {
        at[me] == WAIT && !again[me] && can_fail -> fails(); send(me, GIVE_UP, wanted[me])
    }

    :: d_step {
        at[me] == SENT ->
        at[me] = DONE;
        carry_out(me, sent[me]);
        answer[me] = said;
        knows_turn[me] = (said == BUSY && wants_to_write(me) && holders == 0);
        assert(!(sent[me].op == ACQUIRE && said == HAD && lost[me])); /* nested in what was lost */
        assert(!(sent[me].op == RELEASE && said == FREED && lost[me]))
    }
    :: d_step { at[me] == DONE -> receive(me) }
    :: d_step { at[me] == LATE && held[me] == 0 -> send(me, GIVE_UP, wanted[me]) }
    :: d_step {
        at[me] == LATE && held[me] != 0 ->
        abandon(me); forget_sent(me); end_section(me); check_sleepers()
    }

    :: d_step { may_release(me, OUTER_READ) -> release_one(me, OUTER_READ) }
    :: d_step { may_release(me, OUTER_WRITE) -> release_one(me, OUTER_WRITE) }
    :: d_step { may_release(me, INNER_READ) -> release_one(me, INNER_READ) }
    :: d_step { may_release(me, INNER_WRITE) -> release_one(me, INNER_WRITE) }
    /* What is over is released late, or left to expire. */
    :: d_step { at[me] == HOLD && over[me] -> abandon(me); end_section(me) }
    /* A renewal finds that the holds are lost. */
    :: d_step {
        at[me] == HOLD && lost[me] && !over[me] ->
        assert(list[id_of(me, name[me])] == 0); /* and does not find a list that came back */
        over[me] = true
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
        fresh[me] = false;
        check_sleepers()
    }
    :: d_step { at[me] == DOUBT -> kill_broken_connection(me) }
    /* Another server process answers, the kill is refused, or nobody answers. */
    :: d_step { at[me] == DOUBT -> live_with_doubt(me) }
    /* The limit is over. */
    :: d_step { at[me] == DOUBT && sent[me].op == ACQUIRE && can_fail -> fails(); take_back(me) }
    :: d_step {
        at[me] == DOUBT && sent[me].op == ACQUIRE && can_fail -> fails(); leave_in_doubt(me)
    }

    /* It was paused, or could not renew. */
    :: d_step { may_be_over(me) && can_fail -> fails(); over[me] = true }
    :: d_step { at[me] != DEAD && can_fail -> fails(); die(me) }
    od
}

/* ---- Time, and what else befalls Redis ------------------------------------------------------- */

#define gets_hold(c) (at[c] == DONE && sent[c].op == ACQUIRE && answer[c] == HAD)
#define to_end(c) ((held[c] != 0 || gets_hold(c)) && !over[c] && !excused[c])

/* Clients whose hold Redis is about to forget. */
inline lose_owner(c) {
    if
    :: name[c] != 0 && list[id_of(c, name[c])] != 0 &&
       (held[c] != 0 || gets_hold(c) || sent[c].op == RELEASE) ->
        lost[c] = true;
        excused[c] = !over[c]
    :: else
    fi
}

/* Redis' time is over for that name of client c. */
inline expire(c, its_name) {
    if
    :: name[c] == its_name ->
        assert(!to_end(c)); /* no validity outlasts Redis' time */
        lose_owner(c)
    :: else
    fi;
    list[id_of(c, its_name)] = 0;
    recount();
    all_look()
}

#define may_expire(c, its_name) \
    (list[id_of(c, its_name)] != 0 && \
     (name[c] != its_name -> ((abandoned[c] >> its_name) & 1) : \
      !(to_end(c) && covered[c]) && \
      (to_end(c) || over[c] || ((abandoned[c] >> its_name) & 1) || at[c] == DOUBT || \
       at[c] == WAIT || (at[c] == SENT && sent[c].op == ACQUIRE))))

#define waits_as(c, its_name) (name[c] == its_name && waits(c))
#define has_mark_as(c, its_name) (((readers | writers) & bit_of(id_of(c, its_name))) != 0)

inline end_mark(c, its_name) {
    id = id_of(c, its_name);
    take_marks_out();
    id = 0;
    all_look()
}

#ifdef PLANT_MARK_STAYS
#define mark_may_end false
#else
#define mark_may_end true
#endif

/* One owner's time is over, or its mark, because it does not ask any more or asks too late. */
#define TIMES_OF(c, n) \
    :: d_step { n <= NAMES && may_expire(c, n) -> expire(c, n) } \
    :: d_step { \
        n <= NAMES && has_mark_as(c, n) && !waits_as(c, n) && mark_may_end -> end_mark(c, n) \
    } \
    :: d_step { \
        n <= NAMES && has_mark_as(c, n) && waits_as(c, n) && can_fail -> fails(); end_mark(c, n) \
    }

proctype time_of(byte me) {
end:
    do
    TIMES_OF(me, 1)
    TIMES_OF(me, 2)
    TIMES_OF(me, 3)
    TIMES_OF(me, 4)
    od
}

#define is_invited(c) (c <= CLIENTS && name[c] != 0 && waits(c) && (invited & my_bit(c)) != 0)
#define somebody_comes (is_invited(1) || is_invited(2) || is_invited(3) || is_invited(4))

inline lose_all() {
    for (i : 1 .. CLIENTS) { lose_owner(i) }
    for (i : 0 .. OWNERS - 1) { list[i] = 0 }
}

proctype world() {
    byte c;
end:
    do
    /* The invitation ends: no trouble when none of the invited is left. */
    :: d_step { invited != 0 && !somebody_comes -> end_turn(); check_sleepers() }
    :: d_step {
        invited != 0 && somebody_comes && can_fail -> fails(); end_turn(); check_sleepers()
    }
    /* An operator breaks the lock; Redis comes back empty. */
    :: d_step {
        holders != 0 && can_fail ->
        fails(); lose_all(); wrote = true; wake(); check_sleepers()
    }
    :: d_step {
        (holders != 0 || (readers | writers | invited) != 0) && can_fail ->
        fails(); lose_all(); readers = 0; writers = 0; invited = 0; recount(); all_look()
    }
#ifndef CALM
    :: timeout ->
        for (c : 1 .. CLIENTS) { assert(at[c] == DEAD || (at[c] == IDLE && sections[c] == 0)) }
        assert(holders == 0);
        assert((readers | writers | invited) == 0);
        break
#endif
    od
}

init {
    byte c;
    atomic {
        for (c : 1 .. CLIENTS) { run client(c); run time_of(c) }
        c = 0;
        run world()
    }
}

#ifdef CALM
ltl served { [] (waits(CLIENTS) -> <> (held[CLIENTS] != 0)) }
#endif
