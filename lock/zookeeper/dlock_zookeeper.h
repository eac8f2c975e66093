/* SPDX-License-Identifier: Apache-2.0
 *
 * dlock_zookeeper -- libdlock's locks on ZooKeeper, by libdlock-zookeeper.
 *
 *     const char *servers[] = { "zk://h1:2181,h2:2181,h3:2181/locks" };
 *     struct dlock_options options = { .size = sizeof options, .engine = dlock_zookeeper(),
 *                                      .servers = servers, .server_count = 1 };
 *
 * Its one rung is `zookeeper`: a queue of ephemeral sequential nodes, as in
 * https://zookeeper.apache.org/doc/current/recipes.html. The owner of the first node has the lock,
 * and each waiter watches the node before its own. The lock survives the loss of any minority of
 * the servers, the leader included. Holds are re-entrant and have tokens, and waiters are served in
 * the order in which they came to the servers.
 *
 * URL.  zk://[user:password@]host[:port][,host[:port]...][/path][?tick_ms=N]: one, with all servers
 * of the ensemble. The port is 2181 by default. All nodes of the library are below the path,
 * /dlock by default. User and password may be %-encoded; with them nodes are created for that user
 * alone (scheme `digest`). tick_ms is the servers' tickTime, 2000 by default; give it if it is
 * another. Servers whose configuration has no tickTime use 3000. If it is given too small, a hold
 * can be counted valid for too long. The same goes for servers that differ in tickTime,
 * minSessionTimeout or maxSessionTimeout. No TLS: Debian's client library has none.
 *
 * TIME TO LIVE.  A client has one session, and all its holds live as long as the session.
 * options.ttl_ms is what is asked for, 30000 by default. The servers may grant more: that counts,
 * and dlock_remaining_ms() tells it. If they grant less, an acquire answers INVALID, and
 * dlock_error() says what they grant. A session must be at least three ticks. A want.ttl_ms other
 * than the session's is INVALID.
 * While a lock is open, the client writes to a node of its own, six times in a session's time-out.
 * Holds are valid as long as these writes prove that the session lives (docs/design/zookeeper.md).
 * If no quorum answers, they end before the servers can let the session expire. A session that has
 * had no answer for its whole time-out is given up, and a new one is opened. Keep a lock open while
 * you work. If none was open for long, the first acquire takes about a tick longer. If its limit is
 * shorter, it answers BUSY even if the lock is free.
 *
 * IDENTITY.  dlock_identity() is a random value in a node of ours, "<path>/identity". It differs if
 * the ensemble has lost its data. Before you use a copy of the data, delete the node. Clients watch
 * it, and read it anew after each new connection. A nested hold that asks for it may get a newer
 * one than that of its token, if its outer hold did not ask.
 *
 * WHAT DIFFERS.  want.reads, and the batch of a release, are commands of Redis: UNSUPPORTED. A
 * nested hold has the token of its owner's first hold. A break, or a delete by an operator, is told
 * as LOST when the watch of the holder's node reports it, perhaps after the next grant. ZooKeeper's
 * client library gives a silent connection up after two thirds of the session's time-out. An
 * inspection tells a ttl_ms of -1. The options connections_max, retry_ms, on_trace and those of
 * hand-off have no effect; replicas_ack and sentinel_password are INVALID. Allow the user to
 * create, read, write and delete below the path. A break that answers UNKNOWN may be carried out
 * after the call. dlock_client_close() ends the session, and with it all holds. So it waits until
 * each abandoned hold is over, ttl_ms at most. If you can't wait, end the process without closing
 * the client: the servers then end the session in time.
 *
 * LIMITS.  The system's resolver looks host names up, and only to connect. Closing a client waits
 * for a look-up that is under way, and up to 5 s for a server that does not answer. After a lost
 * connection the client library looks names up without a pause, until one is found. Give numeric
 * addresses where names may fail. To open a session it begins two threads, and ends the process
 * (assert) if it gets none. We look before whether two can be made. Other threads may take them in
 * between, so leave the process room below its limit. Give no observers that are attached to
 * followers (observerMasterPort, since 3.6): holds could be counted valid for too long. While a
 * server leaves a request unanswered for command_timeout_ms, new acquires send nothing. They end
 * UNREACHABLE, unless it answers in time. A queue has about two thousand million numbers. When they
 * are used up, acquires answer BUSY for a moment, until it begins anew. The client watches a node
 * for each hold, and for each waiter up to options.contenders for a lock. After a reconnect one
 * request has the paths of all these nodes. If it is larger than the servers' jute.maxbuffer, 1 MiB
 * by default, the session is given up, and its holds are lost.
 *
 * WAITERS.  A waiter is woken when the one before it in the queue is gone. If no wake-up comes, it
 * asks again after half of the session's time-out. If the client has 32 waiters or more on one
 * lock, the pause grows, up to 60 s. It is never shorter than half of the time-out. Each
 * question costs the servers a walk over the queue. So options.contenders above a hundred makes
 * each acquire slower.
 *
 * THREADS.  A client has four threads more: two of ZooKeeper's client library, one that opens
 * sessions, and one that keeps the time. They begin with the first acquire.
 */
#ifndef DLOCK_ZOOKEEPER_H
#define DLOCK_ZOOKEEPER_H

#include <dlock.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For dlock_options.engine. Static storage; never NULL. */
DLOCK_API const struct dlock_engine *dlock_zookeeper(void);

#ifdef __cplusplus
}
#endif

#endif
