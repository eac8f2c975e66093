/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts of others inside our JSON: quoted at any size they are a JSON text, and no address of a
 * server is left in a sentence.
 */
#include "target.h"
#include "text.h"
#include "token.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

static void try_quote(const char *text, size_t size)
{
    char *quoted = malloc(size);
    char *json = malloc(size + 2);
    REQUIRE(quoted != NULL && json != NULL);
    text_quote(quoted, size, text);
    REQUIRE(strlen(quoted) < size);
    snprintf(json, size + 2, "\"%s\"", quoted);
    cJSON *parsed = cJSON_ParseWithOpts(json, NULL, 1);
    REQUIRE(cJSON_IsString(parsed) && strlen(parsed->valuestring) <= strlen(text));
    cJSON_Delete(parsed);
    free(json);
    free(quoted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    char *text = copy_text(data + 1, size - 1);
    size_t length = strlen(text);
    try_quote(text, 1 + data[0]);
    if (token_is_valid(text))
        REQUIRE(length >= TOKEN_MIN && length <= TOKEN_MAX);
    REQUIRE(!token_is_given("0123456789abcdef", text) || strstr(text, "0123456789abcdef") != NULL);
    const char *at = strrchr(text, '@');
    if (at != NULL && memchr(text, ':', (size_t)(at - text)) != NULL)
        REQUIRE(length >= 4000 || strstr(text_without_logins(text), "***@") != NULL);
    text_hide_servers(text);
    REQUIRE(strlen(text) <= length && strstr(text, "redis://") == NULL &&
            strstr(text, "unix:") == NULL && strstr(text, "zk://") == NULL &&
            strstr(text, "etcd://") == NULL && strstr(text, "etcds://") == NULL);
    free(text);
    return 0;
}
