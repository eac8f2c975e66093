/* SPDX-License-Identifier: Apache-2.0
 *
 * The token of `redlock`, and the identity of its servers (docs/design/redlock.md): for spin;
 * tests/model/run walks it.
 *
 * Three servers, of which two must accept a token. The lock excludes nobody in here: any two
 * acquisitions may overlap, as they do when a process is frozen, or when a server comes back empty.
 * There is no clock either. So only the rules of the token keep two of them apart. Each server
 * carries out one request at a time, and the requests of a round reach the servers in any order, or
 * not at all.
 *
 * SECTIONS  how many acquisitions each client may begin
 * TROUBLES  how often a server loses its memory
 * PLANT_*   a mistake, for the model to find
 */
#ifndef SECTIONS
#define SECTIONS 2
#endif
#ifndef TROUBLES
#define TROUBLES 1
#endif
#define SERVERS 3
#define CLIENTS 2
#define IDENTITIES 4

/* ---- What the servers know ------------------------------------------------------------------- */

byte accepted[SERVERS + 1]; /* the newest token that it accepted; 0: none */
byte identity[SERVERS + 1]; /* of the set; 0: none */

/* ---- What the clients know ------------------------------------------------------------------- */

mtype = { IDLE, ASK, PROPOSE, MAKE };

mtype at[CLIENTS + 1] = IDLE;
byte asked[CLIENTS + 1]; /* a bit for each server: it was asked in this round, */
byte yes[CLIENTS + 1];   /* and has answered, or accepted */
byte said[(CLIENTS + 1) * (SERVERS + 1)]; /* the identity that a server told */
byte mine[CLIENTS + 1];  /* the identity that counts */
byte token[CLIENTS + 1];
byte proposals[CLIENTS + 1];
byte sections[CLIENTS + 1] = SECTIONS;
byte made; /* identities are random: no two are equal */

byte troubles = TROUBLES;

/* For the properties alone. */
int counted[IDENTITIES];                /* by identity: a bit for each token that counted */
byte newest[IDENTITIES];                /* and the newest of them */
byte above[(CLIENTS + 1) * IDENTITIES]; /* `newest` when the acquisition began */

#define bit(s) (1 << ((s) - 1))
#define all_servers 7
#define size(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1))
#define is_majority(set) (size(set) >= 2)
#define told(c, s) said[(c) * (SERVERS + 1) + (s)]
#define is_twice(c, s, t) (told(c, s) != 0 && told(c, s) == told(c, t))

hidden byte s;
hidden byte i;

inline raise_token(c, at_least) {
    if
    :: token[c] < (at_least) -> token[c] = at_least
    :: else
    fi
}

/* ---- The first round, with the acquire ------------------------------------------------------- */

inline begin(c) {
    asked[c] = 0; yes[c] = 0; token[c] = 0; proposals[c] = 0; mine[c] = 0;
    for (i : 1 .. SERVERS) { told(c, i) = 0 }
    for (i : 1 .. IDENTITIES - 1) { above[c * IDENTITIES + i] = newest[i] }
    sections[c]--;
    at[c] = ASK
}

/* It reads the identity before it grants the lock, in one script. */
inline answer_acquire(c, s) {
    yes[c] = yes[c] | bit(s);
    told(c, s) = identity[s];
    raise_token(c, accepted[s] + 1)
}

/* An identity counts if a majority of all servers told it. */
inline begin_proposal(c) {
    if
    :: is_twice(c, 1, 2) || is_twice(c, 1, 3) -> mine[c] = told(c, 1)
    :: !is_twice(c, 1, 2) && !is_twice(c, 1, 3) && is_twice(c, 2, 3) -> mine[c] = told(c, 2)
    :: else
    fi;
    asked[c] = 0; yes[c] = 0;
    if
    :: mine[c] != 0 -> at[c] = PROPOSE
    /* None counts: this acquire is given back, and makes one for the next. */
    :: else -> at[c] = MAKE; made++; mine[c] = made
    fi
}

/* ---- The second round ------------------------------------------------------------------------ */

#ifdef PLANT_ACCEPTS_SAME
#define is_acceptable(c, s) (token[c] >= accepted[s])
#else
#define is_acceptable(c, s) (token[c] > accepted[s])
#endif
#ifdef PLANT_IDENTITY_NOT_COMPARED
#define is_of(c, s) true
#else
#define is_of(c, s) (identity[s] == mine[c])
#endif
#ifdef PLANT_TOKEN_OF_ONE_SERVER
#define is_accepted(c) (yes[c] != 0)
#else
#define is_accepted(c) (is_majority(yes[c]))
#endif

/* A server that lost its memory has no identity, so it accepts nothing until a new one is made. */
inline answer_proposal(c, s) {
#ifdef PLANT_EMPTY_ADOPTS
    if
    :: identity[s] == 0 -> identity[s] = mine[c]
    :: else
    fi;
#endif
    if
    :: is_of(c, s) && is_acceptable(c, s) -> accepted[s] = token[c]; yes[c] = yes[c] | bit(s)
    :: else -> skip
    fi
}

inline count_token(c) {
    assert(!((counted[mine[c]] >> token[c]) & 1));        /* no two have the same */
    assert(token[c] > above[c * IDENTITIES + mine[c]]);   /* and later ones have larger ones */
    counted[mine[c]] = counted[mine[c]] | (1 << token[c]);
    if
    :: newest[mine[c]] < token[c] -> newest[mine[c]] = token[c]
    :: else
    fi;
    at[c] = IDLE
}

/* Refused: it proposes once more, above all that it can see. */
inline propose_again(c) {
    proposals[c]++;
    for (i : 1 .. SERVERS) {
        if
        :: accepted[i] >= token[c] -> token[c] = accepted[i] + 1
        :: else
        fi
    }
    asked[c] = 0; yes[c] = 0
}

/* ---- A new identity -------------------------------------------------------------------------- */

/* A newer one replaces an older one. */
inline answer_make(c, s) {
    if
    :: identity[s] < mine[c] -> identity[s] = mine[c]
    :: else
    fi
}

/* ---- A client -------------------------------------------------------------------------------- */

#define may_ask(c, s) (at[c] != IDLE && !(asked[c] & bit(s)))

inline ask(c, server) {
    s = server;
    asked[c] = asked[c] | bit(s);
    if
    :: at[c] == ASK -> answer_acquire(c, s)
    :: at[c] == PROPOSE -> answer_proposal(c, s)
    :: at[c] == MAKE -> answer_make(c, s)
    fi
}

proctype client(byte c) {
end:
    do
    :: d_step { at[c] == IDLE && sections[c] > 0 -> begin(c) }
    :: d_step { may_ask(c, 1) -> ask(c, 1) }
    :: d_step { may_ask(c, 2) -> ask(c, 2) }
    :: d_step { may_ask(c, 3) -> ask(c, 3) }
    /* Servers that have not answered may be down. */
    :: d_step { at[c] == ASK && is_majority(yes[c]) && made < IDENTITIES - 1 -> begin_proposal(c) }
    :: d_step { at[c] == PROPOSE && is_accepted(c) -> count_token(c) }
    :: d_step {
        at[c] == PROPOSE && asked[c] == all_servers && !is_accepted(c) && proposals[c] == 0 ->
        propose_again(c)
    }
    :: d_step {
        at[c] == PROPOSE && asked[c] == all_servers && !is_accepted(c) && proposals[c] > 0 ->
        at[c] = IDLE
    }
    :: d_step { at[c] == MAKE && is_majority(asked[c]) -> at[c] = IDLE }
    od
}

inline forget(server) {
    accepted[server] = 0; identity[server] = 0
}

proctype world() {
end:
    do
    :: d_step { troubles > 0 -> troubles--; forget(1) }
    :: d_step { troubles > 0 -> troubles--; forget(2) }
    :: d_step { troubles > 0 -> troubles--; forget(3) }
    od
}

init {
    atomic {
        run client(1);
        run client(2);
        run world()
    }
}
