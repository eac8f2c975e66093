/* SPDX-License-Identifier: Apache-2.0
 *
 * Since when a lease's time counts, what replies mean, and what the engine's URLs may be: without a
 * server.
 */
#include "calls.h"
#include "body.h"
#include "etcd_url.h"
#include "lease_proof.h"
#include "reply.h"

#include <stdlib.h>
#include <string.h>

static const struct answerer leader = {.member = 1, .term = 7}, later = {.member = 1, .term = 8},
                             other = {.member = 2, .term = 7};

/* ---- The proof ------------------------------------------------------------------------------- */

static struct lease_proof begun(int64_t at)
{
    struct lease_proof proof;
    lease_proof_begin(&proof, at);
    return proof;
}

/* A quorum has confirmed it. */
static void a_lease_counts_from_the_send_of_its_grant(void **state)
{
    (void)state;
    struct lease_proof proof = begun(100);
    assert_int_equal(proof.counts_ns, 100);
    assert_false(lease_proof_confirmed(&proof, 200, leader));
    assert_int_equal(proof.counts_ns, 100);
}

/* A leader that was deposed answers it. */
static void a_keep_alive_alone_proves_nothing(void **state)
{
    (void)state;
    struct lease_proof proof = begun(100);
    for (int64_t at = 200; at < 5000; at += 100)
        lease_proof_renewed(&proof, at, at + 10, leader);
    assert_int_equal(proof.counts_ns, 100);
}

/* From its send, and by a request that was sent after its answer. */
static void a_later_request_proves_it(void **state)
{
    (void)state;
    struct lease_proof proof = begun(100);
    lease_proof_renewed(&proof, 200, 300, leader);
    assert_false(lease_proof_confirmed(&proof, 299, leader));
    assert_true(lease_proof_confirmed(&proof, 300, leader));
    assert_int_equal(proof.counts_ns, 200);
    assert_false(lease_proof_confirmed(&proof, 400, leader));
}

static void another_term_or_member_proves_nothing(void **state)
{
    (void)state;
    struct lease_proof proof = begun(100);
    lease_proof_renewed(&proof, 200, 300, leader);
    assert_false(lease_proof_confirmed(&proof, 400, later));
    assert_false(lease_proof_confirmed(&proof, 400, other));
    assert_int_equal(proof.counts_ns, 100);
    lease_proof_renewed(&proof, 500, 600, later);
    assert_true(lease_proof_confirmed(&proof, 700, later));
    assert_int_equal(proof.counts_ns, 500);
}

/* An answer without a member or a term: two such need not be of the same leader. */
static void nobody_proves_nothing(void **state)
{
    (void)state;
    static const struct answerer unknown[] = {{0}, {.member = 1}, {.term = 7}};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        struct lease_proof proof = begun(100);
        lease_proof_renewed(&proof, 200, 300, unknown[i]);
        assert_false(lease_proof_confirmed(&proof, 400, unknown[i]));
        assert_int_equal(proof.counts_ns, 100);
    }
}

/* Even if each request takes longer than the pause between two keep-alives. */
static void late_requests_prove_what_was_before_them(void **state)
{
    (void)state;
    struct lease_proof proof = begun(0);
    for (int64_t at = 100; at <= 1000; at += 100) {
        lease_proof_renewed(&proof, at, at + 10, leader);
        if (at > 500)
            assert_true(lease_proof_confirmed(&proof, at - 400, leader));
    }
    assert_int_equal(proof.counts_ns, 500);
}

static void the_oldest_is_forgotten(void **state)
{
    (void)state;
    struct lease_proof proof = begun(0);
    for (int64_t at = 1; at <= 3 * RENEWALS_MAX; at++)
        lease_proof_renewed(&proof, 10 * at, 10 * at + 1, leader);
    assert_int_equal(proof.renewal_count, RENEWALS_MAX);
    assert_true(lease_proof_confirmed(&proof, INT64_MAX, leader));
    assert_int_equal(proof.counts_ns, 10 * 3 * RENEWALS_MAX);
}

/* ---- Replies --------------------------------------------------------------------------------- */

static struct reply read(long http, const char *text)
{
    struct reply reply;
    reply_read(&reply, http, text, strlen(text));
    return reply;
}

static void what_replies_mean(void **state)
{
    static const struct {
        long http;
        const char *text;
        enum outcome outcome;
    } replies[] = {
        {200, "{\"header\":{\"member_id\":\"1\", \"raft_term\":\"7\"}}", ANSWERED},
        {200, "{\"result\":{\"header\":{}}}\n", ANSWERED},
        {404,
         "{\"error\":\"etcdserver: requested lease not found\",\"message\":\"etcdserver: "
         "requested lease not found\",\"code\":5}",
         LEASE_GONE},
        {404, "{\"code\":5, \"message\":\"etcdserver: requested lease not found\", \"details\":[]}",
         LEASE_GONE},
        {401, "{\"code\":16,\"message\":\"etcdserver: invalid auth token\"}", TOKEN_BAD},
        {400, "{\"code\":3,\"message\":\"etcdserver: revision of auth store is old\"}", TOKEN_BAD},
        {400, "{\"code\":3,\"message\":\"etcdserver: user name is empty\"}", REFUSED},
        {403, "{\"code\":7,\"message\":\"etcdserver: permission denied\"}", REFUSED},
        {429, "{\"code\":8,\"message\":\"etcdserver: mvcc: database space exceeded\"}", REFUSED},
        {429, "{\"code\":8,\"message\":\"etcdserver: too many requests\"}", UNANSWERED},
        {503, "{\"code\":14,\"message\":\"etcdserver: request timed out\"}", UNANSWERED},
        {500, "{\"code\":2,\"message\":\"context deadline exceeded\"}", UNANSWERED},
        {200, "{\"error\":{\"grpc_code\":14,\"http_code\":503,\"message\":\"no leader\"}}",
         UNANSWERED},
        {404, "404 page not found", REFUSED},
        {408, "<html>Request Timeout</html>", UNANSWERED},
        {429, "", UNANSWERED},
        {503, "{\"code\":14,\"message\":\"etcdserver: rpc not supported for learner\"}",
         UNANSWERED},
        {502, "<html>", UNANSWERED},
        {200, "", UNANSWERED},
        {200, "[]", UNANSWERED},
        {200, "{\"header\":", UNANSWERED},
    };
    (void)state;
    for (size_t i = 0; i < sizeof replies / sizeof replies[0]; i++) {
        struct reply reply = read(replies[i].http, replies[i].text);
        if (reply.outcome != replies[i].outcome)
            failed("%s means %d, not %d", replies[i].text, reply.outcome, replies[i].outcome);
        reply_free(&reply);
    }
}

static void what_a_reply_found(void **state)
{
    (void)state;
    struct reply reply = read(
        200, "{\"header\":{\"member_id\":\"18446744073709551615\",\"revision\":\"9\"},"
             "\"succeeded\":true,\"responses\":[{\"response_put\":{}},{\"response_range\":"
             "{\"kvs\":[{\"key\":\"L2EvYg==\",\"create_revision\":\"5\",\"mod_revision\":\"6\","
             "\"lease\":\"7587\"}]}},{\"response_range\":{}}]}");
    struct found found = reply_found(&reply, 1, "/a/");
    assert_true(reply.succeeded && reply.by.member == UINT64_MAX && reply.revision == 9);
    assert_true(found.exists && found.created == 5 && found.changed == 6 && found.lease == 7587);
    assert_string_equal(found.node, "b");
    assert_string_equal(reply_found(&reply, 1, "/b/").node, "");
    assert_false(reply_found(&reply, 0, "").exists);
    assert_false(reply_found(&reply, 2, "").exists);
    assert_false(reply_found(&reply, 3, "").exists);
    assert_false(reply_found(&reply, -1, "").exists);
    reply_free(&reply);
}

/* Whatever a server says: nothing of it is more than the type holds, or than a line of a log. */
static void what_no_server_should_say(void **state)
{
    (void)state;
    cJSON *json =
        cJSON_Parse("{\"a\":\"-1\",\"b\":1e300,\"c\":-5,\"d\":[],\"e\":\"\",\"f\":\"7x\",\"g\":7}");
    const uint64_t right[] = {0, 0, 0, 0, 0, 7, 7};
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        assert_int_equal(json_number(json, name), right[i]);
    }
    cJSON_Delete(json);
    struct reply reply = read(500, "{\"code\":2,\"message\":\"a\\nb\\u001bc\"}");
    assert_string_equal(reply.why, "a b c");
    reply_free(&reply);
}

/* What is written in base64 is read from it. */
static void base64_there_and_back(void **state)
{
    (void)state;
    const char *names[] = {"a", "ab", "abc", "abcd", "\xff\xfe\x01~", "lock:{a%2Fb}"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct body body;
        char text[64];
        body_begin(&body);
        body_add(&body, "{");
        body_key(&body, (struct key){"/x/", names[i]});
        body_add(&body, "}");
        body_end(&body);
        cJSON *json = cJSON_Parse(body.text);
        assert_true(json_bytes(json, "key", text, sizeof text));
        assert_string_equal(text + 3, names[i]);
        assert_false(json_bytes(json, "key", text, 3));
        cJSON_Delete(json);
        free(body.text);
    }
}

/* ---- URLs ------------------------------------------------------------------------------------ */

static void what_a_url_says(void **state)
{
    (void)state;
    struct etcd_url url;
    assert_status(etcd_url_read(&url, "etcd://h1,h2:2382,[::1]/a/b/"), OK);
    assert_int_equal(url.endpoint_count, 3);
    assert_string_equal(url.endpoints[0], "http://h1:2379");
    assert_string_equal(url.endpoints[1], "http://h2:2382");
    assert_string_equal(url.endpoints[2], "http://[::1]:2379");
    assert_string_equal(url.root, "/a/b");
    assert_null(url.user);
    etcd_url_free(&url);
    assert_status(etcd_url_read(&url, "etcds://ann:p%40ss:word@h1?ca=/c%20a&cert=/c&key=/k"), OK);
    assert_string_equal(url.endpoints[0], "https://h1:2379");
    assert_string_equal(url.user, "ann");
    assert_string_equal(url.password, "p@ss:word");
    assert_string_equal(url.root, "/dlock");
    assert_string_equal(url.ca, "/c a");
    assert_string_equal(url.cert, "/c");
    assert_string_equal(url.key, "/k");
    etcd_url_free(&url);
}

static void what_is_no_url(void **state)
{
    static const struct {
        const char *url, *says;
    } wrong[] = {
        {"redis://h1", "begins with neither"},
        {"etcd:h1", "begins with neither"},
        {"etcd://", "a host that is not"},
        {"etcd:///path", "a host that is not"},
        {"etcd://h1,,h2", "a host that is not"},
        {"etcd://h1:0", "a host that is not"},
        {"etcd://a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a", "more than 16 hosts"},
        {"etcd://secret@h1", "a login that is not"},
        {"etcd://:secret@h1", "a login that is not"},
        {"etcd://a:secret%4@h1", "a '%' in its login"},
        {"etcd://h1/a//b", "an empty name"},
        {"etcd://h1?ca=/c", "belong to etcds://"},
        {"etcds://h1?ca=", "an option that is not"},
        {"etcds://h1?ca=/a&ca=/b", "an option that is not"},
        {"etcds://h1?tick_ms=5", "an option that is not"},
        {"etcds://h1?cert=/c", "one of cert= and key="},
        {"etcds://h1?ca=%0", "a '%' in a file's name"},
    };
    struct etcd_url url;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_status(etcd_url_read(&url, wrong[i].url), INVALID);
        assert_says(dlock_error(), wrong[i].says);
        assert_null(strstr(dlock_error(), "secret"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_counts_from_the_send_of_its_grant),
        cmocka_unit_test(a_keep_alive_alone_proves_nothing),
        cmocka_unit_test(a_later_request_proves_it),
        cmocka_unit_test(another_term_or_member_proves_nothing),
        cmocka_unit_test(nobody_proves_nothing),
        cmocka_unit_test(late_requests_prove_what_was_before_them),
        cmocka_unit_test(the_oldest_is_forgotten),
        cmocka_unit_test(what_replies_mean),
        cmocka_unit_test(what_a_reply_found),
        cmocka_unit_test(what_no_server_should_say),
        cmocka_unit_test(base64_there_and_back),
        cmocka_unit_test(what_a_url_says),
        cmocka_unit_test(what_is_no_url),
    };
    return cmocka_run_group_tests_name("etcd_proof", tests, NULL, NULL);
}
