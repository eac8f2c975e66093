/* SPDX-License-Identifier: Apache-2.0
 *
 * See host.h.
 */
#include "host.h"

#include "../lock/redis/lookup.h"
#include "clock.h"

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct host {
    char *name;
    char port[8];
    pthread_mutex_t mutex; /* protects what is below */
    struct lookup *lookup; /* the one under way, or NULL */
    int64_t begun_ns;      /* when it began */
    struct addresses known; /* what the last successful look-up found */
};

struct host *host_new(const char *name, int port)
{
    struct host *host = calloc(1, sizeof *host);
    if (host == NULL)
        return NULL;
    snprintf(host->port, sizeof host->port, "%d", port);
    pthread_mutex_init(&host->mutex, NULL);
    host->name = strdup(name);
    if (host->name != NULL)
        return host;
    host_free(host);
    return NULL;
}

void host_free(struct host *host)
{
    if (host == NULL)
        return;
    lookup_leave(host->lookup);
    pthread_mutex_destroy(&host->mutex);
    free(host->name);
    free(host);
}

/* The mutex is held. What a look-up found that ended when nobody waited for it any more is kept. */
static void take_late(struct host *host)
{
    struct addresses found;
    if (host->lookup == NULL || !lookup_over(host->lookup))
        return;
    if (lookup_found(host->lookup, &found) == 0)
        host->known = found;
    lookup_leave(host->lookup);
    host->lookup = NULL;
}

/* A share in the look-up under way, which is begun if there is none; NULL: it cannot be begun. */
static struct lookup *join(struct host *host, int64_t *begun_ns)
{
    pthread_mutex_lock(&host->mutex);
    take_late(host);
    if (host->lookup == NULL) {
        host->lookup = lookup_begin(host->name, host->port);
        host->begun_ns = now_ns();
    }
    struct lookup *lookup = host->lookup;
    if (lookup != NULL)
        lookup_join(lookup);
    *begun_ns = host->begun_ns;
    pthread_mutex_unlock(&host->mutex);
    return lookup;
}

/* Gives the share back. A look-up that is over leaves the host, and what it found is kept. Returns
 * NULL, or why nothing was found. */
static const char *leave(struct host *host, struct lookup *lookup, struct addresses *found)
{
    const char *why = "the resolver has not answered within the time-out";
    bool last = false;
    pthread_mutex_lock(&host->mutex);
    if (lookup_over(lookup)) {
        int error = lookup_found(lookup, found);
        why = error != 0 ? gai_strerror(error) : NULL;
        last = host->lookup == lookup;
        if (last)
            host->lookup = NULL;
        if (why == NULL)
            host->known = *found;
    }
    if (why != NULL && host->known.count > 0) {
        *found = host->known;
        why = NULL;
    }
    pthread_mutex_unlock(&host->mutex);
    if (last) /* the host's own share */
        lookup_leave(lookup);
    lookup_leave(lookup);
    return why;
}

static bool is_known(struct host *host)
{
    pthread_mutex_lock(&host->mutex);
    bool known = host->known.count > 0;
    pthread_mutex_unlock(&host->mutex);
    return known;
}

/* Waits until it is over, until by_ns, or until end_fd is readable. */
static void await(const struct lookup *lookup, int64_t by_ns, int end_fd)
{
    struct pollfd polls[] = {{.fd = lookup_fd(lookup), .events = POLLIN},
                             {.fd = end_fd, .events = POLLIN}};
    int64_t left_ns;
    while ((left_ns = by_ns - now_ns()) > 0)
        if (poll(polls, 2, (int)(left_ns / NS_PER_MS) + 1) > 0)
            return;
}

static const char *find(struct host *host, int64_t by_ns, int end_fd, struct addresses *found)
{
    const int64_t time_ns = by_ns - now_ns();
    int64_t begun_ns;
    if (lookup_numeric(host->name, host->port, found) == 0)
        return NULL;
    struct lookup *lookup = join(host, &begun_ns);
    if (lookup == NULL)
        return "there is no thread, descriptor or memory to look the host's name up";
    /* Half of the time remains to connect. Who joins a look-up that hangs does not wait anew. */
    const bool known = is_known(host);
    await(lookup, known ? begun_ns + time_ns / 2 : by_ns, end_fd);
    return leave(host, lookup, found);
}

const char *host_find(struct host *host, int64_t by_ns, int end_fd, struct host_addresses *found)
{
    struct addresses addresses = {.count = 0};
    const char *why = find(host, by_ns, end_fd, &addresses);
    found->count = 0;
    for (size_t i = 0; why == NULL && i < addresses.count; i++) {
        const struct address *address = &addresses.list[i];
        if (found->count < HOST_ADDRESSES_MAX &&
            getnameinfo((const struct sockaddr *)&address->at, address->size,
                        found->list[found->count], HOST_ADDRESS_SIZE, NULL, 0,
                        NI_NUMERICHOST) == 0)
            found->count++;
    }
    return why != NULL || found->count > 0 ? why : "the host's name has no address";
}
