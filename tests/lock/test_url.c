/* SPDX-License-Identifier: Apache-2.0
 *
 * URLs: good ones, bad ones and garbage, and that no password is told.
 */
#include "calls.h"
#include "url.h"

#include <stdio.h>
#include <stdlib.h>

static void same(const char *got, const char *expected)
{
    if (expected == NULL)
        assert_null(got);
    else
        assert_string_equal(got, expected);
}

/* As many bytes as sun_path holds. */
#define PATH_107                                                                                   \
    "/0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890" \
    "123456789012345"

static void good_urls(void **state)
{
    static const struct {
        const char *text, *host, *port, *path, *user, *password, *db, *shown;
    } good[] = {
        {"redis://h", "h", "6379", 0, 0, 0, 0, "redis://h:6379/0"},
        {"redis://h/", "h", "6379", 0, 0, 0, 0, "redis://h:6379/0"},
        {"redis://10.0.0.1:1/2", "10.0.0.1", "1", 0, 0, 0, "2", "redis://10.0.0.1:1/2"},
        {"redis://h:65535/99999", "h", "65535", 0, 0, 0, "99999", "redis://h:65535/99999"},
        {"redis://h/007", "h", "6379", 0, 0, 0, "7", "redis://h:6379/7"},
        {"redis://h/00", "h", "6379", 0, 0, 0, "0", "redis://h:6379/0"},
        {"redis://:pw@h", "h", "6379", 0, 0, "pw", 0, "redis://h:6379/0"},
        {"redis://u:pw@h:7", "h", "7", 0, "u", "pw", 0, "redis://h:7/0"},
        {"redis://u:a:b@h", "h", "6379", 0, "u", "a:b", 0, "redis://h:6379/0"},
        {"redis://u:a@b@h", "h", "6379", 0, "u", "a@b", 0, "redis://h:6379/0"},
        {"redis://u:@h", "h", "6379", 0, "u", "", 0, "redis://h:6379/0"},
        {"redis://a%40b:p%3A%2f%25@h", "h", "6379", 0, "a@b", "p:/%", 0, "redis://h:6379/0"},
        {"redis://[::1]", "::1", "6379", 0, 0, 0, 0, "redis://[::1]:6379/0"},
        {"redis://u:p@[fe80::1%25lo]:8/3", "fe80::1%lo", "8", 0, "u", "p", "3",
         "redis://[fe80::1%lo]:8/3"},
        {"unix:/run/r.sock", 0, 0, "/run/r.sock", 0, 0, 0, "unix:/run/r.sock?db=0"},
        {"unix:///run/r.sock", 0, 0, "/run/r.sock", 0, 0, 0, "unix:/run/r.sock?db=0"},
        {"unix:/run/a:b@c", 0, 0, "/run/a:b@c", 0, 0, 0, "unix:/run/a:b@c?db=0"},
        {"unix:/run/%3f?db=3", 0, 0, "/run/?", 0, 0, "3", "unix:/run/??db=3"},
        {"unix:" PATH_107, 0, 0, PATH_107, 0, 0, 0, "unix:" PATH_107 "?db=0"},
        {"unix:r.sock", 0, 0, "r.sock", 0, 0, 0, "unix:r.sock?db=0"},
        {"unix::pw@/r", 0, 0, "/r", 0, "pw", 0, "unix:/r?db=0"},
        {"unix://u:pw@/r?db=1", 0, 0, "/r", "u", "pw", "1", "unix:/r?db=1"},
        {"unix:u:p/w@/r", 0, 0, "/r", "u", "p/w", 0, "unix:/r?db=0"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct url url;
        assert_status(url_parse(good[i].text, &url), OK);
        same(url.host, good[i].host);
        same(url.port, good[i].port);
        same(url.path, good[i].path);
        same(url.user, good[i].user);
        same(url.password, good[i].password);
        same(url.db, good[i].db);
        same(url.shown, good[i].shown);
        url_free(&url);
    }
}

/* hosts: all of them, as "host|port host|port". */
static void sentinels(void **state)
{
    static const struct {
        const char *text, *hosts, *master, *user, *password, *db, *shown;
    } good[] = {
        {"sentinel://h/shop", "h|26379", "shop", 0, 0, 0, "sentinel://h:26379/shop"},
        {"sentinel://h/shop/", "h|26379", "shop", 0, 0, 0, "sentinel://h:26379/shop"},
        {"sentinel://a,b:1,c/my-master_1.x", "a|26379 b|1 c|26379", "my-master_1.x", 0, 0, 0,
         "sentinel://a:26379,b:1,c:26379/my-master_1.x"},
        {"sentinel://h:1,h:2/m", "h|1 h|2", "m", 0, 0, 0, "sentinel://h:1,h:2/m"},
        {"sentinel://[::1],[fe80::1]:7/m/12", "::1|26379 fe80::1|7", "m", 0, 0, "12",
         "sentinel://[::1]:26379,[fe80::1]:7/m/12"},
        {"sentinel://u:p%40,%2Fq@a,b/m", "a|26379 b|26379", "m", "u", "p@,/q", 0,
         "sentinel://a:26379,b:26379/m"},
        {"sentinel://:p@a/m", "a|26379", "m", 0, "p", 0, "sentinel://a:26379/m"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct url url;
        char hosts[128] = "";
        int used = 0;
        assert_status(url_parse(good[i].text, &url), OK);
        for (size_t j = 0; j < url.sentinel_count; j++)
            used += snprintf(hosts + used, sizeof hosts - (size_t)used, "%s%s|%s", j > 0 ? " " : "",
                             url.sentinels[j].host, url.sentinels[j].port);
        same(hosts, good[i].hosts);
        same(url.host, NULL);
        same(url.path, NULL);
        same(url.master, good[i].master);
        same(url.user, good[i].user);
        same(url.password, good[i].password);
        same(url.db, good[i].db);
        same(url.shown, good[i].shown);
        url_free(&url);
    }
}

static void too_many_sentinels(void **state)
{
    (void)state;
    for (int count = 16; count <= 17; count++) {
        char text[256] = "sentinel://h1";
        struct url url;
        for (int i = 2; i <= count; i++)
            snprintf(text + strlen(text), sizeof text - strlen(text), ",h%d", i);
        strcat(text, "/shop");
        dlock_status status = url_parse(text, &url);
        assert_int_equal(status, count == 16 ? DLOCK_OK : DLOCK_INVALID);
        if (count == 17)
            assert_says(dlock_error(), "has more than 16 sentinels");
        url_free(&url);
    }
}

#define SECRET "s3cr3t"

static const char *const bad_ones[] = {
    "",
    "h",
    "h:6379",
    "redis",
    "redis:",
    "redis:h",
    "redis://",
    "redis:///0",
    "redis://:6379",
    "redis://@h",
    "redis://user@h",
    "redis://h:",
    "redis://h:0",
    "redis://h:-1",
    "redis://h:65536",
    "redis://h:6379x",
    "redis://h:123456789012345678901234567890",
    "redis://h/x",
    "redis://h/-1",
    "redis://h/1/2",
    "redis://h/1?db=2",
    "redis://h/100000",
    "redis://[::1",
    "redis://[]",
    "redis://[::1]x",
    "redis://%",
    "redis://%4",
    "redis://%4g",
    "redis://%00",
    "rediss://h",
    "http://h",
    "unix",
    "unix:",
    "unix://",
    "unix:?db=1",
    "unix:/r?db=",
    "unix:/r?db=x",
    "unix:/r?x=1",
    "unix:/r%zz",
    "unix:user@/r",
    "unix:" PATH_107 "7",
    "sentinel:",
    "sentinel://",
    "sentinel:///shop",
    "sentinel://h",
    "sentinel://h/",
    "sentinel://h,/shop",
    "sentinel://,h/shop",
    "sentinel://h,,i/shop",
    "sentinel://h, i/shop",
    "sentinel://h;i/shop",
    "sentinel://h\t/shop",
    "redis://h ",
    "sentinel://h:0/shop",
    "sentinel://h:x,i/shop",
    "sentinel://h,h/shop",
    "sentinel://h:6379,H:06379/shop",
    "sentinel://h,i:1,H:26379/shop",
    "sentinel://[::1/shop",
    "sentinel://[::1]x,h/shop",
    "sentinel://h/shop/x",
    "sentinel://h/shop/1/2",
    "sentinel://h/sh%20op",
    "sentinel://h/sh op",
    "sentinel://h/shop?db=1",
    "sentinel://u@h/shop",
    /* What was meant for a password is never told. */
    "redis://:" SECRET,
    "redis://user:" SECRET,
    "redis://user:" SECRET "/0",
    "redis://:" SECRET "@",
    "redis://:" SECRET "@:1",
    "redis://:" SECRET "%zz@h",
    "redis://u:" SECRET "%00@h",
    "redis://u:" SECRET "@h:port",
    "redis://u:" SECRET "/@h",
    "redis://u:" SECRET "@h/x",
    "rediss://u:" SECRET "@h",
    "rediss://u:" SECRET,
    "u:" SECRET "@h",
    "sentinel://u:" SECRET "@h",
    "sentinel://u:" SECRET "@h,h/shop",
    "sentinel://u:" SECRET "/@h/shop",
    "sentinel://:" SECRET "@/shop",
    "sentinel://u:" SECRET,
    "unix:u:" SECRET,
    "unix:u:" SECRET "@",
    "unix:u:" SECRET "?db=1",
};

static void bad_urls(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_ones / sizeof bad_ones[0]; i++) {
        struct url url;
        dlock_status status = url_parse(bad_ones[i], &url);
        if (status != DLOCK_INVALID)
            failed("'%s' was taken for a server's URL", bad_ones[i]);
        assert_says(dlock_error(), "give redis://[[user]:password@]host[:port][/db] or unix:");
        if (strstr(dlock_error(), SECRET) != NULL)
            failed("'%s' tells the password: %s", bad_ones[i], dlock_error());
        assert_says(dlock_error(), "sentinel://[[user]:password@]host[:port],.../master[/db]");
        url_free(&url);
    }
    struct url url;
    assert_status(url_parse(NULL, &url), INVALID);
}

static void urls_that_say_what_would_be_right(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"redis://127.0.0.1?db=2",
         "'redis://127.0.0.1?db=2' has a '?': the database follows a '/', as in "
         "redis://host:6379/2; give redis://"},
        {"redis://[::1]?db=2", "as in redis://host:6379/2"},
        {"redis://h:1?db=2", "as in redis://host:6379/2"},
        {"redis://h/1?db=2", "as in redis://host:6379/2"},
        {"redis://:" SECRET "@h?db=2", "'...@h?db=2' has a '?'"},
        {"redis://:p?q@h:0", "'...@h:0' has a port that is not a number from 1 to 65535"},
        {"redis://h:65536", "'redis://h:...' has a port that is not a number from 1 to 65535"},
        {"redis://h:abc/1", "has a port that is not a number"},
        {"redis://h:6379 ", "has a port that is not a number"},
        {"redis://h:6379#1", "has a port that is not a number"},
        {"redis://h/-1", "'redis://h/-1' has a database that is not a number from 0 to 99999"},
        {"redis://h:6379/x", "'redis://h:...' has a database that is not a number"},
        {"redis://u:" SECRET "@h/100000", "'...@h/100000' has a database that is not a number"},
        {"redis://u:" SECRET "/@h", "'...@h' has a '/' in its login; write it as %2F"},
        {"redis://user@h", "'...@h' has an '@', but no ':' before the password"},
        {"redis://:1", "has no host"},
        {"redis://::1", "has two ':' in an address; an IPv6 address stands in brackets, as in "
                        "redis://[::1]:6379"},
        {"redis://u:" SECRET "@fe80::1:6379", "'...@fe80::1:6379' has two ':' in an address"},
        {"redis://h,i", "'redis://h,i' has a ',': only sentinel:// takes a list of hosts"},
        {"redis://h:1,i:2", "has a ',': only sentinel:// takes a list of hosts"},
        {"redis://[::1", "has a '[' without a ']'"},
        {"redis://[::1]x", "after its ']'"},
        {"redis://%zz", "'redis://%zz' has a '%' that is not followed by two hex digits"},
        {"unix:/r%00", "'unix:/r%00' has a '%' that is not followed by two hex digits"},
        {"unix:" PATH_107 "7", "7' has a path that is not of 1 to 107 bytes"},
        {"unix:?db=1", "has a path that is not of 1 to 107 bytes"},
        {"unix:/a?b", "'unix:/a?b' has a '?' that is not the one of '?db=N'"},
        {"unix:/a?db=x", "with N from 0 to 99999; write another as %3F"},
        {"unix:u:" SECRET "?@/r", "'...@/r' has a '?' that is not the one of '?db=N'"},
        {"unix:u:" SECRET, "'unix:u:...' has a ':' without an '@'"},
        {"sentinel://h", "'sentinel://h' does not name the master; its name in the sentinels' "
                         "configuration follows a '/', as in sentinel://host/shop"},
        {"sentinel://h/", "does not name the master"},
        {"sentinel://h/a b", "has a master's name that is not of 1 to 100 letters, digits, '.'"},
        {"sentinel://h,h:26379/m", "has the same sentinel twice, which would count as two"},
        {"sentinel://h,/m", "'sentinel://h,/m' has a sentinel without a host in its list; give "
                            "each as host or host:port, and put one ',' between two"},
        {"sentinel://,h/m", "has a sentinel without a host in its list"},
        {"sentinel://h,,i/m", "has a sentinel without a host in its list"},
        {"sentinel://:26379/m", "has a sentinel without a host in its list"},
        {"sentinel:///m", "has a sentinel without a host in its list"},
        {"sentinel://u:" SECRET "@/m", "'...@/m' has a sentinel without a host in its list"},
        {"sentinel://fe80::1/m", "has two ':' in an address"},
        {"sentinel://h,i:70000/m", "has a port that is not a number from 1 to 65535"},
        {"sentinel://h/m/x", "has a database that is not a number from 0 to 99999"},
        {"sentinel://h/m?db=1", "the database follows the master's name, as in /shop/2"},
        {"sentinel://u:" SECRET "/@h/m", "'...@h/m' has a '/' in its login; write it as %2F"},
        {"http://h", "'http://h' begins with none of redis://, unix: and sentinel://"},
        {"rediss://h:6379", "'rediss://h:...' needs TLS, which libdlock does not support: run a "
                            "local TLS proxy such as stunnel; give redis://"},
        {"rediss://:" SECRET "@h?", "needs TLS"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct url url;
        assert_status(url_parse(bad[i].text, &url), INVALID);
        assert_says(dlock_error(), bad[i].says);
        assert_null(strstr(dlock_error(), SECRET));
    }
    struct url url;
    assert_status(url_parse("redis://:p?q@h", &url), OK);
    assert_string_equal(url.password, "p?q");
    url_free(&url);
}

/* Pieces of URLs in any order: never anything but a URL or a refusal, and no word of what stands
 * where a password stands. */
static void garbage_urls(void **state)
{
    static const char *const pieces[] = {
        "redis://", "unix:", "sentinel://", "//",  "/",    ":", "@",    "%",
        ",",        "/shop", "%41",         "%00", "[",    "]", "::1",  "h",
        "127.1",    "6379",  "65536",       "?",   "?db=", "7", "\xff", " "};
    static const char *const starts[] = {"redis://", "unix:", "unix://", "sentinel://"};
    (void)state;
    unsigned seed = 20240501;
    for (int i = 0; i < 60000; i++) {
        char text[512];
        bool with_secret = i % 2 == 0;
        int used = 0;
        if (with_secret)
            used = snprintf(text, sizeof text, "%s%s:" SECRET, starts[(unsigned)rand_r(&seed) % 3],
                            rand_r(&seed) % 2 == 0 ? "user" : "");
        for (int left = rand_r(&seed) % 12; left > 0; left--)
            used += snprintf(text + used, sizeof text - (size_t)used, "%s",
                             pieces[(unsigned)rand_r(&seed) % (sizeof pieces / sizeof pieces[0])]);
        text[used] = '\0';
        struct url url;
        dlock_status status = url_parse(text, &url);
        if (status != DLOCK_OK && status != DLOCK_INVALID)
            failed("seed 20240501, %d: '%s' gave %s", i, text, dlock_status_name(status));
        const char *said = status == DLOCK_OK ? url.shown : dlock_error();
        if (with_secret && strstr(said, SECRET) != NULL)
            failed("seed 20240501, %d: '%s' tells the password: %s", i, text, said);
        url_free(&url);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_urls),
        cmocka_unit_test(sentinels),
        cmocka_unit_test(too_many_sentinels),
        cmocka_unit_test(bad_urls),
        cmocka_unit_test(urls_that_say_what_would_be_right),
        cmocka_unit_test(garbage_urls),
    };
    return cmocka_run_group_tests_name("url", tests, NULL, NULL);
}
