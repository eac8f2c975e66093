/* SPDX-License-Identifier: Apache-2.0
 *
 * herd HOST:PORT[,HOST:PORT...] PATH COUNT: so many waiters in the queue of a lock in ZooKeeper,
 * each with a session of its own. PATH is the parent of the queue's nodes. This is the flawed way:
 * each waiter watches the parent, and lists all nodes again when one is gone. It prints
 *     waiting        when all have a node and watch
 *     woken N        when all have had the lock: how often a waiter was woken
 * A waiter that has the lock releases it when all others watch again. So each release finds the
 * same watches in each run.
 */
#define THREADED
#include <zookeeper/zookeeper.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SESSION_MS 600000
#define STEP_S 60 /* none takes so long, even on a busy machine */
#define PATH_MAX_BYTES 1024

struct waiter {
    zhandle_t *handle;
    char node[PATH_MAX_BYTES]; /* its path */
    bool connected;
    bool gone;
};

static const char *parent;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* With the mutex. */
static int due;               /* answers that the present step waits for */
static long woken;            /* how often a waiter was */
static struct waiter *holder; /* NULL: not known */

static void give_up(const char *what, const char *why)
{
    fprintf(stderr, "herd: %s: %s\n", what, why);
    _Exit(1);
}

static void must(int rc, const char *what)
{
    if (rc != ZOK)
        give_up(what, zerror(rc));
}

static void no_log(const char *message)
{
    (void)message;
}

static void step_answered(void)
{
    if (--due == 0)
        pthread_cond_signal(&changed);
}

/* With the mutex. */
static void await_step(const char *what)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += STEP_S;
    while (due > 0)
        if (pthread_cond_timedwait(&changed, &mutex, &until) != 0)
            give_up(what, "that took too long");
}

static void session_changed(zhandle_t *handle, int type, int state, const char *path, void *arg)
{
    struct waiter *waiter = arg;
    (void)handle, (void)path;
    if (type != ZOO_SESSION_EVENT || state != ZOO_CONNECTED_STATE)
        return;
    pthread_mutex_lock(&mutex);
    if (!waiter->connected)
        step_answered();
    waiter->connected = true;
    pthread_mutex_unlock(&mutex);
}

static void is_created(int rc, const char *path, const void *data)
{
    struct waiter *waiter = (struct waiter *)(uintptr_t)data;
    must(rc, "create");
    pthread_mutex_lock(&mutex);
    snprintf(waiter->node, sizeof waiter->node, "%s", path);
    step_answered();
    pthread_mutex_unlock(&mutex);
}

/* Behind the last "-" is the number that ZooKeeper gave the node. */
static long number_of(const char *node)
{
    const char *dash = strrchr(node, '-');
    return dash != NULL ? strtol(dash + 1, NULL, 10) : 0;
}

static bool is_first(const struct waiter *waiter, const struct String_vector *nodes)
{
    for (int i = 0; i < nodes->count; i++)
        if (number_of(nodes->data[i]) < number_of(waiter->node))
            return false;
    return true;
}

static void is_listed(int rc, const struct String_vector *nodes, const void *data)
{
    struct waiter *waiter = (struct waiter *)(uintptr_t)data;
    must(rc, "list");
    pthread_mutex_lock(&mutex);
    if (is_first(waiter, nodes))
        holder = waiter;
    step_answered();
    pthread_mutex_unlock(&mutex);
}

static void queue_changed(zhandle_t *handle, int type, int state, const char *path, void *arg);

static void list_and_watch(struct waiter *waiter)
{
    must(zoo_awget_children(waiter->handle, parent, queue_changed, waiter, is_listed, waiter),
         "list");
}

/* It is not told which node is gone: it must look. */
static void queue_changed(zhandle_t *handle, int type, int state, const char *path, void *arg)
{
    struct waiter *waiter = arg;
    (void)handle, (void)state, (void)path;
    if (type != ZOO_CHILD_EVENT)
        return;
    pthread_mutex_lock(&mutex);
    const bool waits = !waiter->gone; /* else it has released the lock, and that is told, too */
    woken += waits;
    pthread_mutex_unlock(&mutex);
    if (waits)
        list_and_watch(waiter);
}

static void is_deleted(int rc, const void *data)
{
    (void)data;
    must(rc, "delete");
    pthread_mutex_lock(&mutex);
    step_answered();
    pthread_mutex_unlock(&mutex);
}

static void is_synced(int rc, const char *path, const void *data)
{
    (void)path, (void)data;
    must(rc, "sync");
}

static void join(const char *hosts, struct waiter *waiters, int count)
{
    char prefix[PATH_MAX_BYTES];
    snprintf(prefix, sizeof prefix, "%s/herd-", parent);
    due = count;
    for (int i = 0; i < count; i++) {
        waiters[i].handle =
            zookeeper_init2(hosts, session_changed, SESSION_MS, NULL, &waiters[i], 0, no_log);
        if (waiters[i].handle == NULL)
            give_up(hosts, "no session can be opened");
    }
    await_step("sessions");
    due = count;
    for (int i = 0; i < count; i++)
        must(zoo_acreate(waiters[i].handle, prefix, "", 0, &ZOO_OPEN_ACL_UNSAFE,
                         ZOO_EPHEMERAL_SEQUENTIAL, is_created, &waiters[i]),
             "create");
    await_step("nodes");
    due = count;
    for (int i = 0; i < count; i++) {
        /* Its server may lag behind: a create that it has yet to hear of would fire the watch. */
        must(zoo_async(waiters[i].handle, parent, is_synced, NULL), "sync");
        list_and_watch(&waiters[i]);
    }
    await_step("lists");
}

int main(int argc, char **argv)
{
    const int count = argc == 4 ? atoi(argv[3]) : 0;
    if (count < 1 || count > 1000)
        return fputs("usage: herd HOST:PORT[,HOST:PORT...] PATH COUNT (1 to 1000)\n", stderr), 2;
    struct waiter *waiters = calloc((size_t)count, sizeof *waiters);
    if (waiters == NULL)
        give_up("waiters", "out of memory");
    parent = argv[2];
    pthread_mutex_lock(&mutex);
    join(argv[1], waiters, count);
    puts("waiting");
    fflush(stdout);
    due = count; /* each of them lists again after the release of the holder before them */
    await_step("the first release");
    for (int left = count; left > 0; left--) {
        struct waiter *leaving = holder;
        if (leaving == NULL)
            give_up("queue", "nobody is the first");
        leaving->gone = true;
        holder = NULL;
        due = left; /* the others' lists, and the delete */
        must(zoo_adelete(leaving->handle, leaving->node, -1, is_deleted, leaving), "delete");
        await_step("wake-ups");
    }
    printf("woken %ld\n", woken);
    fflush(stdout);
    _Exit(0);
}
