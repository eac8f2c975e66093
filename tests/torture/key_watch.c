/* SPDX-License-Identifier: Apache-2.0
 *
 * See key_watch.h.
 */
#include "key_watch.h"

#include "child.h"
#include "must.h"

#include <hiredis/hiredis.h>
#include <sys/mman.h>
#include <unistd.h>

#define LOOK_US 5000

/* Shared with the process. */
struct key_watch {
    struct world *world;
    struct server *servers[WATCHED_MAX];
    int count;
    const char *key;
    int64_t most_ms;
    pid_t pid;
    _Atomic long found;
    _Atomic bool over;
};

static redisContext *connect_to(const struct server *server)
{
    redisContext *context =
        redisConnectUnixWithTimeout(server_socket(server), (struct timeval){.tv_sec = 1});
    if (context != NULL && context->err == 0) {
        redisSetTimeout(context, (struct timeval){.tv_sec = 1});
        return context;
    }
    if (context != NULL)
        redisFree(context);
    return NULL;
}

static void judge(struct key_watch *watch, int index, const redisReply *left)
{
    if (left->type != REDIS_REPLY_INTEGER) /* it is loading */
        return;
    atomic_fetch_add(&watch->found, left->integer != -2);
    if (left->integer == -1 || left->integer > watch->most_ms)
        violation(watch->world, VIOLATION_KEY, "server %d: %s has %lld ms left, of %lld asked for",
                  index, watch->key, left->integer, (long long)watch->most_ms);
}

static void look_at(struct key_watch *watch, int index, redisContext **context)
{
    if (*context == NULL)
        *context = connect_to(watch->servers[index]);
    if (*context == NULL) /* it is dead */
        return;
    redisReply *left = redisCommand(*context, "PTTL %s", watch->key);
    if (left == NULL) {
        redisFree(*context);
        *context = NULL;
        return;
    }
    judge(watch, index, left);
    freeReplyObject(left);
}

static int look(void *arg)
{
    struct key_watch *watch = arg;
    redisContext *contexts[WATCHED_MAX] = {NULL};
    while (!atomic_load(&watch->over)) {
        for (int i = 0; i < watch->count; i++)
            look_at(watch, i, &contexts[i]);
        usleep(LOOK_US);
    }
    for (int i = 0; i < watch->count; i++)
        if (contexts[i] != NULL)
            redisFree(contexts[i]);
    return 0;
}

struct key_watch *key_watch_start(struct world *world, struct server *const *servers, int count,
                                  const char *key, int64_t most_ms)
{
    struct key_watch *watch =
        mmap(NULL, sizeof *watch, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(watch != MAP_FAILED && count <= WATCHED_MAX);
    *watch = (struct key_watch){.world = world, .count = count, .key = key, .most_ms = most_ms};
    for (int i = 0; i < count; i++)
        watch->servers[i] = servers[i];
    watch->pid = child_start(look, watch);
    return watch;
}

long key_watch_end(struct key_watch *watch)
{
    atomic_store(&watch->over, true);
    must(child_wait(watch->pid) == 0);
    long found = atomic_load(&watch->found);
    munmap(watch, sizeof *watch);
    return found;
}
