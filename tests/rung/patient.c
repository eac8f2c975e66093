/* SPDX-License-Identifier: Apache-2.0
 *
 * See patient.h.
 */
#include "patient.h"

#include "must.h"

#define AGAIN_MS 600000

_Atomic uint64_t patient_answered;
_Atomic int64_t patient_again_ms;
dlock_status (*patient_release)(struct rung_env *env, struct dlock_hold *hold);

static dlock_status take_acquire(struct dlock_hold *hold, const struct answer *answer,
                                 struct busy *busy)
{
    dlock_status status = rung_notify.take_acquire(hold, answer, busy);
    if (status == DLOCK_BUSY) {
        must(busy->kind == WAIT_CHANNEL);
        atomic_store(&patient_again_ms, busy->again_ms);
        if (busy->again_ms >= FALLBACK_MS)
            busy->again_ms = AGAIN_MS;
    }
    atomic_fetch_add(&patient_answered, 1);
    return status;
}

dlock_status notify_release(struct rung_env *env, struct dlock_hold *hold)
{
    struct request request = {.used = 0};
    rung_notify.send_release(&request, hold);
    struct answer answer = rung_eval(env, request.script, request.argv);
    return answer.status == DLOCK_OK ? rung_notify.take_release(hold, &answer) : answer.status;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    return patient_release != NULL ? patient_release(env, hold) : notify_release(env, hold);
}

static const struct rung_ops *made(struct rung_ops *ops, const char *name, enum contend contend)
{
    *ops = rung_notify;
    ops->name = name;
    ops->contend = contend;
    ops->take_acquire = take_acquire;
    ops->send_release = NULL;
    ops->release = release;
    return ops;
}

const struct rung_ops *patient(void)
{
    static struct rung_ops ops;
    return ops.name != NULL ? &ops : made(&ops, "patient", rung_notify.contend);
}

const struct rung_ops *patient_each(void)
{
    static struct rung_ops ops;
    return ops.name != NULL ? &ops : made(&ops, "patient_each", CONTEND_EACH);
}
