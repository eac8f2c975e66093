/* SPDX-License-Identifier: Apache-2.0
 *
 * See admission.h.
 */
#include "admission.h"

#include "../lock/clock.h"
#include "metrics.h"
#include "section.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- The flag's value ------------------------------------------------------------------------ */

static const char window_prefix[] = "window:";

/* Reads a whole number of 1 to ADMISSION_MOST, in digits alone, and moves *text behind it. */
static bool take_number(const char **text, int64_t *number)
{
    const size_t size = strspn(*text, "0123456789");
    *number = size > 0 && size <= 10 ? strtoll(*text, NULL, 10) : 0;
    *text += size;
    return *number >= 1 && *number <= ADMISSION_MOST;
}

bool admission_parse(const char *text, struct admission *admission, char error[ADMISSION_ERROR_MAX])
{
    const size_t prefix = strlen(window_prefix);
    const bool is_window = strncmp(text, window_prefix, prefix) == 0;
    const char *at = is_window ? text + prefix : text, *wrong = NULL;
    *admission = (struct admission){.kind = ADMISSION_OFF};
    if (strcmp(text, "off") == 0)
        return true;
    admission->kind = is_window ? ADMISSION_WINDOW : ADMISSION_BUCKET;
    if (!take_number(&at, &admission->rate))
        wrong = "the rate";
    else if (*at == ',' && is_window)
        wrong = "a window has no burst: its rate";
    else if (*at == ',' && (at++, !take_number(&at, &admission->burst)))
        wrong = "the burst";
    else if (*at != '\0')
        wrong = admission->burst != 0 ? "the burst" : "the rate";
    if (wrong != NULL)
        snprintf(error, ADMISSION_ERROR_MAX,
                 "\"%.60s\" is not " ADMISSION_FORM
                 ": %s must be a whole number from 1 to %d, as in %s",
                 text, wrong, ADMISSION_MOST, is_window ? "window:100" : "100 or 100,50");
    return wrong == NULL;
}

void admission_print(const struct admission *admission, char text[ADMISSION_TEXT_MAX])
{
    const char *prefix = admission->kind == ADMISSION_WINDOW ? window_prefix : "";
    if (admission->kind == ADMISSION_OFF)
        snprintf(text, ADMISSION_TEXT_MAX, "off");
    else if (admission->burst == 0)
        snprintf(text, ADMISSION_TEXT_MAX, "%s%" PRId64, prefix, admission->rate);
    else
        snprintf(text, ADMISSION_TEXT_MAX, "%" PRId64 ",%" PRId64, admission->rate,
                 admission->burst);
}

bool admission_is_same(const struct admission *one, const struct admission *other)
{
    return one->kind == other->kind && one->rate == other->rate && one->burst == other->burst;
}

bool admission_is_flawed(const struct admission *admission)
{
    return admission->kind == ADMISSION_WINDOW;
}

/* ---- Sales ----------------------------------------------------------------------------------- */

void admission_keys(const struct sale_env *env, const struct sale *sale,
                    struct admission_keys *keys)
{
    const bool article = env->config->keys == KEYS_ARTICLE;
    const char *before = article ? "{" : "", *after = article ? "}" : "";
    snprintf(keys->set, ADMISSION_KEY_MAX, "%s%s%s:set", before, sale->item_key, after);
    snprintf(keys->bucket, ADMISSION_KEY_MAX, "%s%s%s:bucket", before, sale->item_key, after);
    snprintf(keys->window, ADMISSION_KEY_MAX, "%s%s%s:window", before, sale->item_key, after);
}

static void end_not_admitted(struct sale *sale, const struct admission *admission, int64_t wait_us)
{
    char detail[sizeof sale->detail];
    snprintf(detail, sizeof detail,
             "more sales of %s were asked for than are admitted, %" PRId64
             " a second; the next may be admitted in %" PRId64 " ms",
             sale->item, admission->rate, (wait_us + 999) / 1000);
    section_end(sale, SALE_NOT_ADMITTED, detail);
    sale->wait_us = wait_us;
}

bool admission_ask(struct sale_worker *worker, struct sale *sale)
{
    const struct admission *admission = &worker->env->mode->now.admission;
    const bool is_window = admission->kind == ADMISSION_WINDOW;
    struct admission_keys keys;
    struct stock_admitted answer;
    if (admission->kind == ADMISSION_OFF || sale->purpose != SALE_SELL)
        return true;
    admission_keys(worker->env, sale, &keys);
    const struct stock_admission asked = {.key = is_window ? keys.window : keys.bucket,
                                          .set_key = is_window ? NULL : keys.set,
                                          .record_key =
                                              sale->key[0] != '\0' ? sale->record_key : NULL,
                                          .rate = admission->rate,
                                          .burst = admission->burst};
    enum stock_status status = stock_admit(worker->stock, &asked, &answer);
    if (status != STOCK_OK) {
        section_end_by_stock(worker, sale, status);
        return false;
    }
    metrics_admission(answer.verdict);
    if (answer.verdict == STOCK_NOT_ADMITTED)
        end_not_admitted(sale, admission, answer.wait_us);
    return answer.verdict != STOCK_NOT_ADMITTED;
}
