/* SPDX-License-Identifier: Apache-2.0
 *
 * What the sanitizers must know of these tests: a forked child opens a client, which starts a
 * thread; ThreadSanitizer would end it for that alone.
 */
const char *__tsan_default_options(void);

const char *__tsan_default_options(void)
{
    return "die_after_fork=0:halt_on_error=1";
}
