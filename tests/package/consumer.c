/* SPDX-License-Identifier: Apache-2.0 */
#include <dlock.h>
int main(int argc, char **argv)
{
    struct dlock_options options = {.size = sizeof options, .server_count = (size_t)argc - 1};
    options.servers = (const char *const *)&argv[1];
    dlock_client *client;
    dlock *lock;
    dlock_hold *hold;
    return dlock_client_open(&options, &client) || dlock_open(client, 0, "lock:{me}", &lock) ||
           dlock_acquire(lock, 0, &hold) || !dlock_valid(hold) || dlock_release(hold, 0);
}
