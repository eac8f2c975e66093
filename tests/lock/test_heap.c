/* SPDX-License-Identifier: Apache-2.0
 *
 * The heap against a plain array: whatever is put, moved and taken out, the soonest is first, and
 * nothing is lost or there twice.
 */
#include "calls.h"
#include "heap.h"

#include <stdlib.h>

#define THINGS 300
#define STEPS 200000
#define MOMENTS 100 /* few, so that many things share one */

struct thing {
    int number;
    struct heap_node node;
    int64_t at_ns; /* as the array has it; INT64_MAX: not in the heap */
};

static int64_t soonest_from(const struct thing *things, int64_t from_ns)
{
    int64_t at_ns = INT64_MAX;
    for (size_t i = 0; i < THINGS; i++)
        if (things[i].at_ns >= from_ns && things[i].at_ns < at_ns)
            at_ns = things[i].at_ns;
    return at_ns;
}

static int64_t soonest(const struct thing *things)
{
    return soonest_from(things, 0);
}

static void put(struct heap *heap, struct thing *thing, int64_t at_ns)
{
    heap_put(heap, &thing->node, at_ns);
    thing->at_ns = at_ns;
}

static void the_soonest_is_first(void **state)
{
    static struct thing things[THINGS];
    struct heap heap = {0};
    unsigned seed = 11;
    (void)state;
    for (int i = 0; i < THINGS; i++)
        things[i] = (struct thing){.number = i, .at_ns = INT64_MAX};
    for (int i = 0; i < STEPS; i++) {
        struct thing *thing = &things[rand_r(&seed) % THINGS];
        unsigned what = (unsigned)rand_r(&seed) % 8;
        if (what < 4) {
            put(&heap, thing, rand_r(&seed) % MOMENTS);
        } else if (what == 4) {
            put(&heap, thing, INT64_MAX);
        } else if (what == 5) {
            heap_take(&thing->node);
            thing->at_ns = INT64_MAX;
        } else if ((thing = HEAP_THING(heap.first, struct thing, node)) != NULL) {
            assert_ptr_equal(thing, &things[thing->number]);
            heap_take(&thing->node);
            thing->at_ns = INT64_MAX;
        }
        assert_true(heap_soonest_ns(&heap) == soonest(things));
        int64_t from_ns = rand_r(&seed) % (MOMENTS + 1);
        assert_true(heap_soonest_from_ns(&heap, from_ns) == soonest_from(things, from_ns));
    }
    while (heap.first != NULL) {
        struct thing *thing = HEAP_THING(heap.first, struct thing, node);
        assert_true(thing->at_ns == soonest(things));
        heap_take(&thing->node);
        thing->at_ns = INT64_MAX;
    }
    assert_true(soonest(things) == INT64_MAX);
}

/* A thing is in one heap at a time: put into another, it leaves the first. */
static void in_one_heap_at_a_time(void **state)
{
    struct thing things[3] = {{.number = 0}};
    struct heap one = {0}, other = {0};
    (void)state;
    for (int i = 0; i < 3; i++)
        heap_put(&one, &things[i].node, i);
    heap_put(&other, &things[0].node, 7);
    assert_true(things[0].node.in == &other && heap_soonest_ns(&other) == 7);
    assert_true(heap_soonest_ns(&one) == 1);
    heap_take(&things[0].node);
    heap_take(&things[0].node);
    assert_null(things[0].node.in);
    assert_true(heap_soonest_ns(&other) == INT64_MAX);
    assert_null(HEAP_THING(other.first, struct thing, node));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_soonest_is_first),
        cmocka_unit_test(in_one_heap_at_a_time),
    };
    return cmocka_run_group_tests_name("heap", tests, NULL, NULL);
}
