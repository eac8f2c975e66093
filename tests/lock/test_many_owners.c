/* SPDX-License-Identifier: Apache-2.0
 *
 * Thousands of owners hold one lock under one client: each question about one of them is answered
 * without a look at all the others, so that the client keeps up with their renewals.
 */
#include "must.h"
#include "own_server.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWNERS 1000
#else
#define OWNERS 12000
#endif
#define TTL_MS 2000
#define TRIES 5  /* a busy machine stalls for longer than the holds live, but not each time */
#define APART 64 /* as the addresses of structs may be, which an application may name owners by */

/* How many were lost until each had been renewed three times. */
static uint64_t lost_of_all(void)
{
    static dlock_hold *holds[OWNERS];
    dlock_client *client = client_of(server_url(server), (struct dlock_options){.ttl_ms = TTL_MS});
    dlock *lock = lock_of(client, "read_write", "many");
    for (size_t i = 0; i < OWNERS; i++) {
        struct dlock_want want = {.size = sizeof want,
                                  .mode = DLOCK_SHARED,
                                  .owner_id = APART * (i + 1),
                                  .wait_ms = PATIENCE_MS};
        assert_status(dlock_acquire(lock, &want, &holds[i]), OK);
    }
    eventually(stats_of(client).renewals >= 3 * OWNERS || stats_of(client).lost > 0);
    uint64_t lost = stats_of(client).lost;
    for (size_t i = 0; i < OWNERS; i++)
        dlock_release(holds[i], NULL);
    dlock_close(lock);
    dlock_client_close(client);
    return lost;
}

static void all_are_kept(void **state)
{
    (void)state;
    uint64_t lost = lost_of_all();
    for (int i = 1; i < TRIES && lost > 0; i++)
        lost = lost_of_all();
    assert_int_equal(lost, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_are_kept)};
    return cmocka_run_group_tests_name("many owners", tests, start_server, stop_server);
}
