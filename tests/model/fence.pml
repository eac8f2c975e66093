/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of the stock's mark, (epoch, token): see docs/design/fence.md. Two instances with three sections; two locks,
 * each with a server of its own, between which an operator switches an instance. Nothing relies on the locks: each grants
 * itself to anybody at any time, so any holder may be an old one. Tokens count from 1 for each lock, and again whenever
 * its server loses its memory. A section may also be handed its instance's latest grant, with the grant's next token. An
 * operator also switches an instance from the fence and back; without it the instance compares nothing. What must hold,
 * as long as all instances have the fence: no write is accepted if another section's was accepted since its own read.
 *
 * TROUBLES   how much may go wrong in a run
 * SWITCHES   how often an operator switches an instance
 * ROUNDS     how often each section is gone through
 * TOGETHER   both locks are on the stock's server, which compares with the newest token that it gave
 * PLANT_*    a mistake, for the model to find
 */
#ifndef TROUBLES
#define TROUBLES 2
#endif
#ifndef SWITCHES
#define SWITCHES 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif

#define IDLE 0
#define BEGUN 1   /* knows the epoch, and asks for the lock */
#define GRANTED 2
#define SETTLED 3 /* its epoch stands for the server that granted the lock */
#define HAS_READ 4
#define instance_of(me) (me == 3 -> 1 : 0) /* sections 1 and 2 are of the first instance */

byte troubles, switches;

/* The locks' servers. With TOGETHER both locks are on the stock's server, and share its newest token. */
byte identity[2], newest[2], identities = 2;
#ifdef TOGETHER
#define at_server(lock) 0
#else
#define at_server(lock) lock
#endif

/* The stock's server. An epoch of 0: there is none. An identity of 0: it is not known yet. */
byte epoch, epoch_lock, epoch_identity, highest, mark_epoch, mark_token;

/* The instances: the lock of each, the epoch that it saw last, and its latest grant: the first token, the last one that
 * was used, and the identity that was read before it. */
byte lock[2], known[2], known_lock[2], known_identity[2];
byte grant_first[2], grant_last[2], grant_identity[2];
bool old[2], refused[2], bare[2]; /* bare: it writes without the fence */
#define TOKENS 4 /* of a grant */

/* The sections. */
byte at[4], rounds[4], mine[4], my_identity[4], token[4], token_identity[4], first[4];
bool handed[4]; /* it did not ask the lock's server */
bool stale[4]; /* another one's write was accepted since its read */

#define can_fail (troubles < TROUBLES)

#ifdef PLANT_NUMBER_AGAIN
#define new_number epoch = epoch + 1
#else
#define new_number highest++; epoch = highest
#endif

inline raise(its_lock, its_identity) {
    new_number;
    epoch_lock = its_lock;
    epoch_identity = its_identity
}

inline note(i) {
    known[i] = epoch; known_lock[i] = epoch_lock; known_identity[i] = epoch_identity;
    old[i] = false;
    refused[i] = (epoch_lock != lock[i])
}

#ifdef PLANT_ADOPTS_ANY
#define is_ours(its_lock, i) true
#else
#define is_ours(its_lock, i) (its_lock == lock[i])
#endif

inline finish(me) {
    at[me] = IDLE; rounds[me]++;
    mine[me] = 0; my_identity[me] = 0; token[me] = 0; token_identity[me] = 0; stale[me] = false;
    first[me] = 0; handed[me] = false
}

inline refuse(me, i) {
    old[i] = true;
    finish(me)
}

/* Takes the epoch that the instance knows, or else asks the stock. */
inline begin(me, i) {
    if
    :: known[i] != 0 && !old[i] && is_ours(known_lock[i], i) ->
        mine[me] = known[i]; my_identity[me] = known_identity[i]; at[me] = BEGUN
    :: else ->
        if
        :: epoch == 0 && refused[i] -> finish(me)
        :: epoch == 0 && !refused[i] -> mine[me] = 0; my_identity[me] = 0; at[me] = BEGUN
        :: epoch != 0 && is_ours(epoch_lock, i) ->
            note(i); mine[me] = epoch; my_identity[me] = epoch_identity; at[me] = BEGUN
        :: else -> note(i); finish(me)
        fi
    fi
}

inline grant(me, i) {
    newest[at_server(lock[i])] = newest[at_server(lock[i])] + TOKENS;
    token[me] = newest[at_server(lock[i])];
    token_identity[me] = identity[at_server(lock[i])];
    first[me] = token[me];
    grant_first[i] = token[me]; grant_last[i] = token[me]; grant_identity[i] = token_identity[me];
    at[me] = GRANTED
}

/* Whether the section has what its instance's latest grant gave. */
#define is_in_grant(me, i) \
    (at[me] >= GRANTED && first[me] == grant_first[i] && token_identity[me] == grant_identity[i])
/* The sections of a grant come one after the other. The third section is alone in its instance. */
#define may_be_handed(i) (i == 0 && grant_first[0] != 0 && grant_last[0] < grant_first[0] + TOKENS - 1 && \
                          !is_in_grant(1, 0) && !is_in_grant(2, 0))

inline hand_off(me, i) {
    grant_last[i]++;
    token[me] = grant_last[i];
    token_identity[me] = grant_identity[i];
    first[me] = grant_first[i];
    handed[me] = true;
    at[me] = GRANTED
}

#ifdef PLANT_HANDED_OFF_RAISES
#define is_own(me) true
#else
#define is_own(me) (!handed[me])
#endif
#ifdef PLANT_RAISES_FROM_ANY
#define may_raise(me) true
#elif defined(PLANT_RAISES_FROM_KNOWN)
#define may_raise(me) (epoch == known[instance_of(me)])
#else
#define may_raise(me) (epoch == mine[me])
#endif

/* Raises the epoch if the lock was granted by another server than the one that it stands for. */
inline settle(me, i) {
    if
    :: mine[me] != 0 && my_identity[me] == token_identity[me] -> at[me] = SETTLED
    :: else ->
        if
        :: is_own(me) && may_raise(me) ->
            assert(epoch == 0 || epoch_lock == lock[i]); /* a sale never switches the lock, */
            assert(epoch_identity < token_identity[me]); /* and never goes back to an old memory */
            raise(lock[i], token_identity[me])
        :: else
        fi;
        if
        :: epoch == 0 -> refuse(me, i)
        :: epoch != 0 && !is_ours(epoch_lock, i) -> note(i); finish(me)
        :: else ->
            note(i);
            if
            :: epoch_identity == token_identity[me] ->
                mine[me] = epoch; my_identity[me] = epoch_identity; at[me] = SETTLED
            :: else -> finish(me)
            fi
        fi
    fi
}

/* A write without the fence marks nothing. So the property counts it only once all have the fence. */
inline accept(me) {
    assert(!stale[me] || bare[0] || bare[1]);
    for (other : 1 .. 3) { stale[other] = stale[other] || (other != me && at[other] == HAS_READ) }
    finish(me)
}

#ifdef PLANT_EPOCH_NOT_COMPARED
#define is_epoch(me) true
#define is_marked(me) (mark_token == token[me])
#else
#define is_epoch(me) (epoch == mine[me])
#define is_marked(me) (mark_epoch == mine[me] && mark_token == token[me])
#endif
#ifdef PLANT_TOKENS_ACROSS_EPOCHS
#define is_overtaken(me) (mark_token > token[me])
#else
#define is_overtaken(me) (mark_epoch == mine[me] && mark_token > token[me])
#endif

inline read_stock(me, i) {
    if
    :: !is_epoch(me) -> refuse(me, i)
#ifdef TOGETHER
    :: else -> at[me] = HAS_READ
#else
    :: is_epoch(me) && is_overtaken(me) ->
        assert(mark_epoch == mine[me]); /* tokens of another epoch exclude nobody */
        finish(me)
    :: else -> mark_epoch = mine[me]; mark_token = token[me]; at[me] = HAS_READ
#endif
    fi
}

#ifdef TOGETHER
#define may_write(me) (is_epoch(me) && token[me] >= newest[0])
#else
#define may_write(me) (is_epoch(me) && is_marked(me))
#endif

inline write_stock(me, i) {
    if
    :: may_write(me) -> accept(me)
    :: !may_write(me) && !is_epoch(me) -> refuse(me, i)
    :: else -> finish(me)
    fi
}

proctype section(byte me) {
    byte other, i;
    i = instance_of(me);
end:
    do
#ifdef PLANT_EPOCH_AFTER_GRANT
    :: d_step { at[me] == IDLE && rounds[me] < ROUNDS -> grant(me, i); at[me] = BEGUN }
    :: d_step { at[me] == BEGUN -> begin(me, i); if :: at[me] == BEGUN -> at[me] = GRANTED :: else fi }
#else
    :: d_step { at[me] == IDLE && rounds[me] < ROUNDS && !bare[i] -> begin(me, i) }
    :: d_step { at[me] == BEGUN && may_be_handed(i) -> hand_off(me, i) }
#ifdef PLANT_IDENTITY_AFTER_GRANT
    :: d_step { at[me] == BEGUN && token[me] == 0 -> grant(me, i); at[me] = BEGUN }
    :: d_step { at[me] == BEGUN && token[me] != 0 -> token_identity[me] = identity[at_server(lock[i])]; at[me] = GRANTED }
#else
    :: d_step { at[me] == BEGUN -> grant(me, i) }
#endif
#endif
    :: d_step { at[me] == GRANTED -> settle(me, i) }
    :: d_step { at[me] == SETTLED -> read_stock(me, i) }
    :: d_step { at[me] == HAS_READ && !bare[i] -> write_stock(me, i) }
    :: d_step { at[me] == IDLE && rounds[me] < ROUNDS && bare[i] -> grant(me, i); at[me] = HAS_READ }
    :: d_step { at[me] == HAS_READ && bare[i] -> accept(me) }
    od
}

#define is_idle(i) (i == 1 -> at[3] == IDLE : at[1] == IDLE && at[2] == IDLE)

/* An operator switches an instance, once its sections have ended. */
inline switch(i) {
    switches++;
    lock[i] = 1 - lock[i];
    grant_first[i] = 0;
    if
    :: bare[i]
#ifndef PLANT_SWITCH_RAISES_NOT
    :: !bare[i] && (epoch == 0 || epoch_lock != lock[i]) -> raise(lock[i], 0)
#endif
    :: else
    fi;
    if
    :: bare[i]
    :: else -> note(i); assert(!refused[i])
    fi
}

/* To the fence, or from it. An epoch that sections may have written in is raised in any case; none has before its
 * identity is known. */
inline switch_fence(i) {
    switches++;
    bare[i] = !bare[i];
    grant_first[i] = 0;
    if
#ifdef PLANT_RAISES_ONLY_LEAVING
    :: epoch != 0 && (bare[i] || epoch_lock != lock[i]) -> raise(lock[i], 0)
#else
    :: epoch != 0 && (bare[i] || epoch_lock != lock[i] || epoch_identity != 0) -> raise(lock[i], 0)
#endif
    :: epoch == 0 && !bare[i] -> raise(lock[i], 0)
    :: else
    fi;
    note(i)
}

proctype world() {
end:
    do
    :: d_step { switches < SWITCHES && is_idle(0) -> switch(0) }
    :: d_step { switches < SWITCHES && is_idle(1) -> switch(1) }
    :: d_step { switches < SWITCHES && is_idle(0) -> switch_fence(0) }
    :: d_step { switches < SWITCHES && is_idle(1) -> switch_fence(1) }
#ifndef TOGETHER
    /* A lock's server loses its memory, or another one answers. */
    :: d_step { can_fail -> troubles++; identities++; identity[0] = identities; newest[0] = 0 }
    :: d_step { can_fail -> troubles++; identities++; identity[1] = identities; newest[1] = 0 }
    /* The stock's server loses the mark. */
    :: d_step { can_fail && mark_epoch != 0 -> troubles++; mark_epoch = 0; mark_token = 0 }
#endif
    /* It loses the epoch. */
    :: d_step { can_fail && epoch != 0 -> troubles++; epoch = 0; epoch_lock = 0; epoch_identity = 0 }
    od
}

init {
    d_step { identity[0] = 1; identity[1] = 2 }
    if
    :: bare[1] = true /* it was started so */
    :: skip
    fi;
    atomic { run section(1); run section(2); run section(3); run world() }
}
