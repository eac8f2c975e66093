/* SPDX-License-Identifier: Apache-2.0
 *
 * Admission control (--admit): limits how many sales of an item may ask for the lock. The stock's
 * Redis decides, by its own clock and in one script, so one limit holds for all instances. A sale
 * that is not admitted is refused at once.
 */
#ifndef ADMISSION_H
#define ADMISSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sale;
struct sale_env;
struct sale_worker;

enum admission_kind {
    ADMISSION_OFF,
    ADMISSION_BUCKET, /* a token bucket an item */
    ADMISSION_WINDOW, /* a counter an item and second of the server. Flawed */
};

struct admission {
    enum admission_kind kind;
    int64_t rate;  /* sales a second; not of ADMISSION_OFF */
    int64_t burst; /* of ADMISSION_BUCKET, in sales; 0: the stock as an operator set it last */
};

#define ADMISSION_FORM "off, RATE[,BURST] or window:RATE"
#define ADMISSION_MOST 1000000000 /* the greatest RATE, and the greatest BURST */
#define ADMISSION_FLAW                                                                             \
    "it counts anew in each second of the server's clock, and admits twice the rate where two "    \
    "seconds meet"

/* False: error[] says what was wrong and what would be right. */
#define ADMISSION_ERROR_MAX 256
bool admission_parse(const char *text, struct admission *admission,
                     char error[ADMISSION_ERROR_MAX]);
/* As admission_parse reads it: "off", "100", "100,50", "window:100". */
#define ADMISSION_TEXT_MAX 48
void admission_print(const struct admission *admission, char text[ADMISSION_TEXT_MAX]);
bool admission_is_same(const struct admission *one, const struct admission *other);
bool admission_is_flawed(const struct admission *admission);

/* The keys of an item's admission, in the cluster slot of its stock. */
#define ADMISSION_KEY_MAX 112
struct admission_keys {
    char set[ADMISSION_KEY_MAX]; /* the stock as an operator set it last */
    char bucket[ADMISSION_KEY_MAX];
    char window[ADMISSION_KEY_MAX];
};
void admission_keys(const struct sale_env *env, const struct sale *sale,
                    struct admission_keys *keys);

/* Before the sale asks for the lock: asks for its admission. True also if nothing is limited.
 * False: the sale has ended. If the reply is lost, the sale is not admitted; a token may have been
 * taken for nothing. */
bool admission_ask(struct sale_worker *worker, struct sale *sale);

#endif
