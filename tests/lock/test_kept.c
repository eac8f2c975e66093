/* SPDX-License-Identifier: Apache-2.0
 *
 * What is kept for a server: each command once, in the order in which they came, and a limit.
 */
#include "calls.h"
#include "kept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEXT 7919 /* has no factor in common with KEPT_MAX */

static struct kept_command *add(struct kept *kept, int number)
{
    char bytes[32];
    int size = snprintf(bytes, sizeof bytes, "release %d", number);
    return kept_add(kept, bytes, (size_t)size + 1); /* with its 0, for atoi() */
}

static int number_of(const struct kept_command *command)
{
    return atoi(command->bytes + strlen("release "));
}

static void each_command_is_kept_once(void **state)
{
    struct kept kept;
    (void)state;
    kept_init(&kept);
    struct kept_command *first = kept_add(&kept, "a\0b", 3);
    assert_non_null(first);
    assert_ptr_equal(kept_add(&kept, "a\0b", 3), first);
    struct kept_command *other = kept_add(&kept, "a\0c", 3);
    struct kept_command *shorter = kept_add(&kept, "a", 1);
    assert_true(other != first && shorter != first && shorter != other);
    assert_int_equal(kept.count, 3);
    kept_drop(&kept, first);
    assert_ptr_equal(kept_add(&kept, "a\0c", 3), other);
    assert_int_equal(kept.count, 2);
    assert_non_null(kept_add(&kept, "a\0b", 3));
    assert_int_equal(kept.count, 3);
    kept_free(&kept);
}

static void beyond_the_limit_nothing_is_kept_but_what_is_there(void **state)
{
    struct kept kept;
    (void)state;
    kept_init(&kept);
    for (int i = 0; i < KEPT_MAX; i++)
        assert_int_equal(number_of(add(&kept, i * NEXT % KEPT_MAX)), i * NEXT % KEPT_MAX);
    assert_null(add(&kept, KEPT_MAX));
    assert_int_equal(number_of(add(&kept, 12)), 12);
    assert_int_equal(kept.count, KEPT_MAX);
    int at = 0;
    struct kept_command *command;
    STAILQ_FOREACH(command, &kept.list, of_list)
        assert_int_equal(number_of(command), at++ * NEXT % KEPT_MAX);
    assert_int_equal(at, KEPT_MAX);
    kept_drop(&kept, add(&kept, 12));
    assert_non_null(add(&kept, KEPT_MAX));
    assert_null(add(&kept, 12));
    kept_free(&kept);
}

static void a_reply_belongs_to_its_command(void **state)
{
    struct kept kept;
    (void)state;
    kept_init(&kept);
    for (int i = 0; i < 3; i++)
        add(&kept, i)->at = (uint64_t)i + 5;
    assert_int_equal(number_of(kept_at(&kept, 6)), 1);
    assert_null(kept_at(&kept, 8));
    kept_drop(&kept, kept_at(&kept, 6));
    assert_null(kept_at(&kept, 6));
    kept_unsent(&kept);
    assert_null(kept_at(&kept, 5));
    assert_int_equal(number_of(kept_at(&kept, 0)), 0);
    kept_free(&kept);
    assert_int_equal(kept.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_command_is_kept_once),
        cmocka_unit_test(beyond_the_limit_nothing_is_kept_but_what_is_there),
        cmocka_unit_test(a_reply_belongs_to_its_command),
    };
    return cmocka_run_group_tests_name("kept", tests, NULL, NULL);
}
