/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits for a lock in an event loop of its own. Meanwhile the loop also watches the standard input:
 * a line, or its end, cancels the wait. No thread of this program blocks in the library.
 *
 *     cc own_loop.c -o own_loop $(pkg-config --cflags --libs dlock) && ./own_loop
 */
#include <dlock.h>

#include <err.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

/* dlock_process calls it, once. */
static void answered(void *arg, dlock_status status, dlock_hold *hold)
{
    bool *over = arg;
    *over = true;
    if (status != DLOCK_OK) {
        printf("%s: %s\n", dlock_status_name(status), dlock_error());
        return;
    }
    printf("held by %s\n", dlock_owner(hold));
    if (dlock_release(hold, NULL) != DLOCK_OK) /* blocks for one request */
        warnx("%s", dlock_error());
}

int main(int argc, char **argv)
{
    dlock_client *client;
    dlock *lock;
    bool over = false;
    dlock_cancel *cancel = dlock_cancel_new();
    struct dlock_options options = {.size = sizeof options,
                                    .servers = argc > 1 ? (const char *const *)argv + 1 : NULL,
                                    .server_count = (size_t)argc - 1, /* 0: the default */
                                    .own_loop = true};
    struct dlock_want want = {.size = sizeof want, .wait_ms = DLOCK_WAIT_FOREVER, .cancel = cancel};

    if (cancel == NULL)
        errx(1, "%s", dlock_error());
    if (dlock_client_open(&options, &client) != DLOCK_OK ||
        dlock_open(client, "notify", "lock:{me}", &lock) != DLOCK_OK ||
        dlock_acquire_start(lock, &want, answered, &over) != DLOCK_OK)
        errx(1, "%s", dlock_error());

    struct pollfd ready[] = {{.fd = dlock_fd(client), .events = POLLIN},
                             {.fd = STDIN_FILENO, .events = POLLIN}};
    while (!over) {
        if (poll(ready, 2, -1) < 0)
            continue; /* a signal */
        if (ready[0].revents != 0)
            dlock_process(client);
        if (ready[1].revents != 0) {
            dlock_cancel_now(cancel); /* answered soon: CANCELLED, or OK if it was acquired */
            ready[1].fd = -1;
        }
    }
    dlock_close(lock);
    dlock_client_close(client);
    dlock_cancel_free(cancel);
    return 0;
}
