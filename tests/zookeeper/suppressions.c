/* SPDX-License-Identifier: Apache-2.0
 *
 * What the sanitizers are not to report of ZooKeeper's client library.
 */
const char *__lsan_default_suppressions(void);
const char *__tsan_default_suppressions(void);

/* It forgets a reply that it has not handled when its handle is closed. */
const char *__lsan_default_suppressions(void)
{
    return "leak:libzookeeper_mt\n";
}

/* It names a server in a buffer that all handles share, for a log that nobody reads. By the
 * function on top: the engine's functions, which it calls back, are watched. */
const char *__tsan_default_suppressions(void)
{
    return "race_top:vsprintf\n";
}
