/* SPDX-License-Identifier: Apache-2.0
 *
 * A real ZooKeeper server of a test's own: a process of Java's, on a free port, in a folder of its
 * own, ended with the test.
 */
#ifndef TESTS_ZOOKEEPER_SERVER_H
#define TESTS_ZOOKEEPER_SERVER_H

#define ZOOKEEPER_TICK_MS 50 /* short, since sessions end by ticks */

struct zookeeper;

/* Starts it and waits until it serves. From the main thread only: it dies with that one. */
struct zookeeper *zookeeper_start(void);
/* The same, with an argument for Java. */
struct zookeeper *zookeeper_start_with(const char *argument);
/* SIGSTOP, and when it is known to have stopped; SIGCONT. */
void zookeeper_pause(struct zookeeper *zookeeper);
void zookeeper_resume(struct zookeeper *zookeeper);
/* SIGKILL, and another one with the same port and data: sessions live on. */
void zookeeper_restart(struct zookeeper *zookeeper);
/* The same, and its data is lost. */
void zookeeper_forget(struct zookeeper *zookeeper);
void zookeeper_free(struct zookeeper *zookeeper);

const char *
zookeeper_url(const struct zookeeper *zookeeper); /* zk://127.0.0.1:<port>?tick_ms=<its tick> */
const char *zookeeper_hosts(const struct zookeeper *zookeeper); /* 127.0.0.1:<port> */

#endif
