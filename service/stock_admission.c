/* SPDX-License-Identifier: Apache-2.0
 *
 * See stock.h, "Admission".
 */
#include "stock_redis.h"
#include "stock_scripts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A key holds something else. number: among the script's keys. */
static enum stock_status no_admission(struct stock *stock, const struct stock_admission *asked,
                                      int64_t number)
{
    const char *key = number == 1 ? asked->key : asked->set_key;
    if ((number != 1 && number != 2) || key == NULL)
        return STOCK_LOST;
    return stock_failed(stock, STOCK_INVALID,
                        "%s: %.200s holds what --admit does not write there; an operator must "
                        "delete it (DEL %.200s)",
                        stock_shown(stock), key, key);
}

/* Reads {what} or {what, number}. STOCK_LOST: anything else. */
static enum stock_status to_admitted(struct stock *stock, const struct stock_admission *asked,
                                     const redisReply *reply, struct stock_admitted *answer)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 1 || reply->elements > 2 ||
        reply->element[0]->type != REDIS_REPLY_STRING)
        return STOCK_LOST;
    const char *what = reply->element[0]->str;
    const redisReply *more = reply->elements == 2 ? reply->element[1] : NULL;
    const int64_t number =
        more != NULL && more->type == REDIS_REPLY_INTEGER && more->integer > 0 ? more->integer : 0;
    if (strcmp(what, "invalid") == 0)
        return no_admission(stock, asked, number);
    *answer = (struct stock_admitted){.wait_us = number};
    if (strcmp(what, "admitted") == 0)
        answer->verdict = STOCK_ADMITTED;
    else if (strcmp(what, "kept") == 0 && asked->record_key != NULL)
        answer->verdict = STOCK_ADMITTED_KEPT;
    else if (strcmp(what, "refused") == 0 && number > 0)
        answer->verdict = STOCK_NOT_ADMITTED;
    else
        return STOCK_LOST;
    return STOCK_OK;
}

enum stock_status stock_admit(struct stock *stock, const struct stock_admission *asked,
                              struct stock_admitted *answer)
{
    const char *words[COMMAND_WORDS_MAX - 2] = {NULL};
    const bool is_bucket = asked->set_key != NULL;
    char key_count[12], rate[24], burst[24] = "";
    int count = 1;
    const redisReply *reply;
    snprintf(rate, sizeof rate, "%" PRId64, asked->rate);
    if (asked->burst > 0)
        snprintf(burst, sizeof burst, "%" PRId64, asked->burst);
    words[count++] = asked->key;
    if (is_bucket)
        words[count++] = asked->set_key;
    if (asked->record_key != NULL)
        words[count++] = asked->record_key;
    snprintf(key_count, sizeof key_count, "%d", count - 1);
    words[0] = key_count;
    words[count++] = rate;
    if (is_bucket)
        words[count++] = burst;
    enum stock_status status =
        stock_run(stock, is_bucket ? &lua_admit_bucket : &lua_admit_window, words, &reply);
    if (status != STOCK_OK)
        return status;
    status = to_admitted(stock, asked, reply, answer);
    return status == STOCK_LOST ? stock_unreadable(stock) : status;
}
