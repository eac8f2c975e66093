/* SPDX-License-Identifier: Apache-2.0
 *
 * dlock_etcd -- libdlock's locks on etcd, by libdlock-etcd.
 *
 *     const char *servers[] = { "etcd://h1:2379,h2:2379,h3:2379/locks" };
 *     struct dlock_options options = { .size = sizeof options, .engine = dlock_etcd(),
 *                                      .servers = servers, .server_count = 1 };
 *
 * Its one rung is `etcd`: a queue of keys that have their client's lease. The owner of the key with
 * the lowest create revision has the lock. The lock survives the loss of any minority of the
 * servers, the leader included. Holds are re-entrant and have tokens, the create revisions. Waiters
 * are served in the order in which they came to the servers.
 *
 * URL.  etcd://[user:password@]host[:port][,host[:port]...][/path], or etcds:// for TLS, with
 * [?ca=FILE][&cert=FILE&key=FILE]: one, with all members of the cluster, 16 at most. The port is
 * 2379 by default. All keys of the library begin with the path, /dlock by default. User, password
 * and files may be %-encoded. With ca= the servers' certificates are checked against that file,
 * else against the system's; cert= and key= are the client's own. Requests go to etcd's JSON
 * gateway, of version 3.4 and later, by HTTP/1.1, and through no proxy.
 *
 * TIME TO LIVE.  A client has one lease, and all its holds live as long as the lease.
 * options.ttl_ms is what is asked for, 30000 by default, 1000 at least; etcd counts whole seconds,
 * so it is rounded up. The servers may grant more, for instance 2 s at least by default: that
 * counts, and dlock_remaining_ms() tells it. A want.ttl_ms other than the lease's is INVALID.
 * While a lock is open, the client keeps the lease alive, six times in its time to live. Holds are
 * valid as long as a quorum has confirmed that these requests reached the leader
 * (docs/design/etcd.md). If no quorum answers, they end before the servers can let the lease
 * expire. When the leader changes, etcd gives each lease its whole time to live anew: the lock of a
 * client that has died stays that much longer.
 *
 * WHAT DIFFERS.  want.reads, and the batch of a release, are commands of Redis: UNSUPPORTED. A
 * nested hold has the token of its owner's first hold. A break, or a delete by an operator, is told
 * as LOST when the watch of the lock reports it, perhaps after the next grant. If the watch is
 * silent, it is told within half of the lease's time. An inspection tells a ttl_ms of -1. A reply
 * of more than 1 MiB is not taken, nor is such a line of a watch; after that the lock's keys are
 * read anew. The options connections_max, retry_ms, on_trace and those of hand-off have no effect;
 * replicas_ack and sentinel_password are INVALID. Allow the user to read and write below the path.
 * If all holds were released, dlock_client_close() revokes the lease, and waits for that a second
 * at most. If one was abandoned or not released, it revokes nothing. All keys of the client then
 * stay until the lease ends.
 *
 * STORE.  etcd keeps the history of all keys until it is compacted. By default nobody does that.
 * Each acquire with its release adds some hundred bytes. When the store is full, etcd refuses every
 * acquire. So let the servers compact: --auto-compaction-mode periodic
 * --auto-compaction-retention 5m.
 *
 * WAITERS.  A waiter is woken when the one before it in the queue is gone. If no wake-up comes, it
 * asks again after half of the lease's time. If the client has 32 waiters or more on one lock, the
 * pause grows, up to 60 s. It is never shorter than half of the lease's time. Each question
 * costs the servers a walk over the queue. So options.contenders above a hundred makes each acquire
 * slower.
 *
 * LIMITS.  Name no server that is not in the cluster: a client that begins there takes its cluster
 * for its own. A load balancer in the URL must not send a request twice: the second one may meet a
 * later holder. The key of each hold is read twice in a lease, besides the keep-alives. With a time
 * to live of 2 s, one frozen member leaves little time to reach another one. Before etcd 3.4.31 and
 * 3.5.13, a leader that was frozen may revoke leases that its successor has renewed. Do not use
 * etcd's feature LeaseCheckpoint with a time to live above 5 min: a new leader may then cut a
 * renewed lease short.
 *
 * THREADS, CONNECTIONS.  A client has two threads more: one for etcd, and one that keeps the time.
 * They begin with the first acquire. It has up to 64 connections for requests, and one or two for
 * its lease. It has one more for each lock that it waits for, or has held for longer than 100 ms.
 * That one is silent for long. A proxy between may end it, and the client begins another one. But
 * the proxy must pass each line of a response on at once, and not gather lines.
 */
#ifndef DLOCK_ETCD_PUBLIC_H
#define DLOCK_ETCD_PUBLIC_H

#include <dlock.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For dlock_options.engine. Static storage; never NULL. */
DLOCK_API const struct dlock_engine *dlock_etcd(void);

#ifdef __cplusplus
}
#endif

#endif
