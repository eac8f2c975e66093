/* SPDX-License-Identifier: Apache-2.0
 *
 * See acceptor.h. A thread that blocks: first for a free place, then for a connection. Shutting the
 * socket down ends the second wait, giving a place the first.
 */
#include "acceptor.h"

#include "clock.h"
#include "log.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_NS (10 * NS_PER_MS) /* when descriptors or memory have run out */

struct acceptor {
    int fd;
    accepted_fn *accepted;
    void *arg;
    sem_t places;
    atomic_bool stopping;
    pthread_t thread;
};

static void wait_for_place(struct acceptor *acceptor)
{
    while (sem_wait(&acceptor->places) != 0)
        continue; /* EINTR is all that it can be */
}

/* -1: the acceptor stops. */
static int wait_for_connection(struct acceptor *acceptor, struct sockaddr_storage *peer,
                               socklen_t *size)
{
    bool told = false;
    while (!atomic_load(&acceptor->stopping)) {
        *size = sizeof *peer;
        int fd = accept4(acceptor->fd, (struct sockaddr *)peer, size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            return fd;
        if (errno == EINTR || errno == ECONNABORTED || atomic_load(&acceptor->stopping))
            continue;
        if (!told)
            log_event(LOG_WARNING, "accept", "connections have to wait: %s", strerror(errno));
        told = true;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    return -1;
}

static void *run_acceptor(void *arg)
{
    struct acceptor *acceptor = arg;
    struct sockaddr_storage peer;
    socklen_t size;
    for (;;) {
        wait_for_place(acceptor);
        int fd = wait_for_connection(acceptor, &peer, &size);
        if (fd < 0)
            return NULL;
        if (!acceptor->accepted(acceptor->arg, fd, (struct sockaddr *)&peer, size))
            acceptor_closed(acceptor);
    }
}

struct acceptor *acceptor_new(int fd, unsigned connections_max, accepted_fn *accepted, void *arg)
{
    struct acceptor *acceptor = calloc(1, sizeof *acceptor);
    if (acceptor == NULL)
        return NULL;
    acceptor->fd = fd;
    acceptor->accepted = accepted;
    acceptor->arg = arg;
    sem_init(&acceptor->places, 0, connections_max);
    return acceptor;
}

bool acceptor_start(struct acceptor *acceptor)
{
    return pthread_create(&acceptor->thread, NULL, run_acceptor, acceptor) == 0;
}

void acceptor_closed(struct acceptor *acceptor)
{
    sem_post(&acceptor->places);
}

void acceptor_stop(struct acceptor *acceptor)
{
    atomic_store(&acceptor->stopping, true);
    shutdown(acceptor->fd, SHUT_RDWR);
    sem_post(&acceptor->places);
    pthread_join(acceptor->thread, NULL);
    close(acceptor->fd);
}

void acceptor_free(struct acceptor *acceptor)
{
    sem_destroy(&acceptor->places);
    free(acceptor);
}
