/* SPDX-License-Identifier: Apache-2.0
 *
 * See batch.h.
 */
#include "batch.h"

#include "status.h"
#include "structs.h"

#include <stdlib.h>
#include <string.h>

/* Redis's own limits. It closes a connection that exceeds them. */
#define ARGUMENTS_MAX (1 << 20)
#define ARGUMENT_SIZE_MAX ((size_t)512 << 20)

static void command_free(struct batch_command *command)
{
    for (int i = 0; command->argv != NULL && i < command->argc; i++)
        free(command->argv[i]);
    free(command->argv);
    free(command->sizes);
    free(command->text);
    *command = (struct batch_command){0};
}

dlock_batch *dlock_batch_new(void)
{
    struct dlock_batch *batch = calloc(1, sizeof *batch);
    if (batch == NULL)
        fail(DLOCK_NO_MEMORY, "out of memory");
    return batch;
}

void dlock_batch_clear(dlock_batch *batch)
{
    if (batch == NULL)
        return;
    for (size_t i = 0; i < batch->count; i++)
        command_free(&batch->commands[i]);
    batch->count = 0;
}

void dlock_batch_free(dlock_batch *batch)
{
    dlock_batch_clear(batch);
    free(batch);
}

/* The commands that must not ride, as of Redis 8. Some do not have exactly one reply, so that later
 * replies would be taken for the wrong command's. Some change the connection, which other calls use
 * next. Others block it. */
static const struct {
    const char *name;
    const char *word; /* unfit only with this argument; NULL: always */
} unfit[] = {
    {"ASKING", NULL},      {"AUTH", NULL},       {"BLMOVE", NULL},        {"BLMPOP", NULL},
    {"BLPOP", NULL},       {"BRPOP", NULL},      {"BRPOPLPUSH", NULL},    {"BZMPOP", NULL},
    {"BZPOPMAX", NULL},    {"BZPOPMIN", NULL},   {"CLIENT", NULL},        {"DEBUG", NULL},
    {"DISCARD", NULL},     {"EXEC", NULL},       {"HELLO", NULL},         {"MONITOR", NULL},
    {"MULTI", NULL},       {"PSUBSCRIBE", NULL}, {"PSYNC", NULL},         {"PUNSUBSCRIBE", NULL},
    {"QUIT", NULL},        {"READONLY", NULL},   {"READWRITE", NULL},     {"REPLCONF", NULL},
    {"RESET", NULL},       {"SCRIPT", "DEBUG"},  {"SELECT", NULL},        {"SHUTDOWN", NULL},
    {"SSUBSCRIBE", NULL},  {"SUBSCRIBE", NULL},  {"SUNSUBSCRIBE", NULL},  {"SYNC", NULL},
    {"UNSUBSCRIBE", NULL}, {"UNWATCH", NULL},    {"WAIT", NULL},          {"WAITAOF", NULL},
    {"WATCH", NULL},       {"XREAD", "BLOCK"},   {"XREADGROUP", "BLOCK"},
};

/* As Redis compares: without a locale, which strcasecmp has. `word` is in capitals. */
static bool is_word(const struct batch_command *command, int index, const char *word)
{
    size_t size = command->sizes[index];
    const char *given = command->argv[index];
    bool same = size == strlen(word);
    for (size_t i = 0; same && i < size; i++)
        same = (given[i] >= 'a' && given[i] <= 'z' ? given[i] - 'a' + 'A' : given[i]) == word[i];
    return same;
}

static bool batch_has_word(const struct batch_command *command, const char *word)
{
    for (int i = 1; i < command->argc; i++)
        if (is_word(command, i, word))
            return true;
    return false;
}

static bool is_unfit(const struct batch_command *command)
{
    for (size_t i = 0; i < sizeof unfit / sizeof unfit[0]; i++)
        if (is_word(command, 0, unfit[i].name) &&
            (unfit[i].word == NULL || batch_has_word(command, unfit[i].word)))
            return true;
    return false;
}

dlock_status dlock_batch_add(dlock_batch *batch, int argc, const char *const *argv,
                             const size_t *sizes)
{
    if (!GIVEN(batch) || !GIVEN(argv))
        return DLOCK_INVALID;
    if (argc < 1 || argc > ARGUMENTS_MAX)
        return fail(DLOCK_INVALID, "argc is %d; it must be 1 to %d", argc, ARGUMENTS_MAX);
    for (int i = 0; i < argc; i++) {
        if (argv[i] == NULL)
            return fail(DLOCK_INVALID, "argv[%d] is NULL, and argc is %d", i, argc);
        if (sizes != NULL && sizes[i] > ARGUMENT_SIZE_MAX)
            return fail(DLOCK_INVALID, "argv[%d] has %zu bytes; at most %zu are allowed", i,
                        sizes[i], ARGUMENT_SIZE_MAX);
    }
    if (batch->count == DLOCK_BATCH_MAX)
        return fail(DLOCK_LIMIT, "a batch holds at most %d commands", DLOCK_BATCH_MAX);
    struct batch_command command = {.argc = argc};
    command.argv = calloc((size_t)argc, sizeof *command.argv);
    command.sizes = calloc((size_t)argc, sizeof *command.sizes);
    bool copied = command.argv != NULL && command.sizes != NULL;
    for (int i = 0; copied && i < argc; i++) {
        command.sizes[i] = sizes != NULL ? sizes[i] : strlen(argv[i]);
        command.argv[i] = malloc(command.sizes[i] + 1);
        copied = command.argv[i] != NULL;
        if (!copied)
            break;
        memcpy(command.argv[i], argv[i], command.sizes[i]);
        command.argv[i][command.sizes[i]] = '\0';
    }
    if (!copied) {
        command_free(&command);
        return fail(DLOCK_NO_MEMORY, "out of memory");
    }
    if (is_unfit(&command)) {
        fail(DLOCK_INVALID,
             "%s cannot be sent in a batch: it changes the connection, waits, or gets more or "
             "fewer than one reply; use a script in place of MULTI",
             argv[0]);
        command_free(&command);
        return DLOCK_INVALID;
    }
    batch->commands[batch->count++] = command;
    return DLOCK_OK;
}

dlock_status dlock_batch_reply(const dlock_batch *batch, size_t index, struct dlock_reply *reply)
{
    if (!GIVEN(batch) || !GIVEN(reply))
        return DLOCK_INVALID;
    if (index >= batch->count)
        return fail(DLOCK_INVALID,
                    "the batch holds %zu commands, numbered from 0; there is no number %zu",
                    batch->count, index);
    dlock_status status = struct_check(reply, "reply");
    if (status != DLOCK_OK)
        return status;
    const struct batch_command *command = &batch->commands[index];
    struct dlock_reply all = {
        .kind = command->kind,
        .integer = command->integer,
        .text = command->text != NULL ? command->text : "",
        .text_size = command->text_size,
    };
    struct_give(reply, &all, sizeof all);
    return DLOCK_OK;
}

void batch_forget(struct dlock_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        batch_keep(&batch->commands[i], NULL);
}

void batch_keep(struct batch_command *command, const redisReply *reply)
{
    free(command->text);
    command->text = NULL;
    command->text_size = 0;
    command->integer = 0;
    command->kind = DLOCK_REPLY_NONE;
    if (reply == NULL)
        return;
    switch (reply->type) {
    case REDIS_REPLY_NIL:
        command->kind = DLOCK_REPLY_NIL;
        return;
    case REDIS_REPLY_INTEGER:
        command->kind = DLOCK_REPLY_INTEGER;
        command->integer = reply->integer;
        return;
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
    case REDIS_REPLY_ERROR:
        command->text = malloc((size_t)reply->len + 1);
        if (command->text == NULL)
            return;
        memcpy(command->text, reply->str, (size_t)reply->len);
        command->text[reply->len] = '\0';
        command->text_size = (size_t)reply->len;
        command->kind = reply->type == REDIS_REPLY_ERROR ? DLOCK_REPLY_ERROR : DLOCK_REPLY_TEXT;
        return;
    default:
        command->kind = DLOCK_REPLY_OTHER;
    }
}
