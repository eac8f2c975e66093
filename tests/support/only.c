/* SPDX-License-Identifier: Apache-2.0
 *
 * TEST_ONLY=NAME in the environment of a test program runs its test of that name alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

__attribute__((constructor)) static void choose_tests(void)
{
    const char *only = getenv("TEST_ONLY");
    if (only != NULL)
        cmocka_set_test_filter(only);
}
