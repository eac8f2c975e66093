/* SPDX-License-Identifier: Apache-2.0
 *
 * See lookup.h.
 */
#include "lookup.h"

#include "thread.h"

#include <netdb.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define THREADS_MAX 64 /* of the process: a resolver that hangs keeps them */
static _Atomic int threads;

struct lookup {
    char *host;
    char *port;
    int fd;
    pthread_mutex_t mutex; /* protects what is below */
    size_t users;
    bool over;
    int error;
    struct addresses found;
};

static int lookup_look(const char *host, const char *port, int flags, struct addresses *addresses)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
    struct addrinfo *found = NULL;
    int error = getaddrinfo(host, port, &hints, &found);
    if (error != 0)
        return error;
    addresses->count = 0;
    for (const struct addrinfo *a = found; a != NULL && addresses->count < ADDRESSES_MAX;
         a = a->ai_next) {
        struct address *address = &addresses->list[addresses->count++];
        memset(address, 0, sizeof *address);
        memcpy(&address->at, a->ai_addr, a->ai_addrlen);
        address->size = a->ai_addrlen;
    }
    freeaddrinfo(found);
    return 0;
}

int lookup_numeric(const char *host, const char *port, struct addresses *addresses)
{
    return lookup_look(host, port, AI_NUMERICHOST, addresses);
}

void lookup_answer(struct lookup *lookup, int error, const struct addresses *found)
{
    uint64_t one = 1;
    pthread_mutex_lock(&lookup->mutex);
    lookup->found = *found;
    lookup->error = error;
    lookup->over = true;
    pthread_mutex_unlock(&lookup->mutex);
    (void)!write(lookup->fd, &one, sizeof one);
}

static void *lookup_run(void *arg)
{
    struct lookup *lookup = arg;
    struct addresses found = {.count = 0};
    int error = lookup_look(lookup->host, lookup->port, 0, &found);
    lookup_answer(lookup, error, &found);
    lookup_leave(lookup);
    atomic_fetch_sub(&threads, 1);
    return NULL;
}

static bool run_apart(struct lookup *lookup)
{
    pthread_t thread;
    bool begun =
        atomic_fetch_add(&threads, 1) < THREADS_MAX && thread_begin(&thread, lookup_run, lookup);
    if (begun)
        pthread_detach(thread);
    else
        atomic_fetch_sub(&threads, 1);
    return begun;
}

struct lookup *lookup_promise(void)
{
    struct lookup *lookup = calloc(1, sizeof *lookup);
    if (lookup == NULL)
        return NULL;
    lookup->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    lookup->users = 1;
    pthread_mutex_init(&lookup->mutex, NULL);
    if (lookup->fd >= 0)
        return lookup;
    lookup_leave(lookup);
    return NULL;
}

struct lookup *lookup_begin(const char *host, const char *port)
{
    struct lookup *lookup = lookup_promise();
    if (lookup == NULL)
        return NULL;
    lookup->host = strdup(host);
    lookup->port = strdup(port);
    lookup->users = 2; /* the caller and the thread */
    if (lookup->host != NULL && lookup->port != NULL && run_apart(lookup))
        return lookup;
    lookup->users = 1;
    lookup_leave(lookup);
    return NULL;
}

void lookup_join(struct lookup *lookup)
{
    pthread_mutex_lock(&lookup->mutex);
    lookup->users++;
    pthread_mutex_unlock(&lookup->mutex);
}

void lookup_leave(struct lookup *lookup)
{
    if (lookup == NULL)
        return;
    pthread_mutex_lock(&lookup->mutex);
    bool last = --lookup->users == 0;
    pthread_mutex_unlock(&lookup->mutex);
    if (!last)
        return;
    if (lookup->fd >= 0)
        close(lookup->fd);
    pthread_mutex_destroy(&lookup->mutex);
    free(lookup->host);
    free(lookup->port);
    free(lookup);
}

int lookup_fd(const struct lookup *lookup)
{
    return lookup->fd;
}

bool lookup_over(struct lookup *lookup)
{
    pthread_mutex_lock(&lookup->mutex);
    bool over = lookup->over;
    pthread_mutex_unlock(&lookup->mutex);
    return over;
}

int lookup_found(struct lookup *lookup, struct addresses *addresses)
{
    pthread_mutex_lock(&lookup->mutex);
    int error = lookup->error;
    if (error == 0)
        *addresses = lookup->found;
    pthread_mutex_unlock(&lookup->mutex);
    return error;
}
