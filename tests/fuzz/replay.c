/* SPDX-License-Identifier: Apache-2.0
 *
 * A target without libFuzzer: gives it every file of the folders that are named, once.
 */
#include "target.h"

#include <dirent.h>
#include <string.h>

static int is_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void replay(const char *folder, const char *name)
{
    char path[4096];
    REQUIRE((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path);
    FILE *file = fopen(path, "rb");
    REQUIRE(file != NULL && fseek(file, 0, SEEK_END) == 0);
    size_t size = (size_t)ftell(file);
    uint8_t *data = malloc(size + 1); /* of its own size, so that a sanitizer sees a byte too far */
    REQUIRE(data != NULL && fseek(file, 0, SEEK_SET) == 0 && fread(data, 1, size, file) == size);
    fclose(file);
    fprintf(stderr, "%s\n", path);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct dirent **entries = NULL;
        int count = scandir(argv[i], &entries, is_file, alphasort);
        REQUIRE(count > 0);
        for (int j = 0; j < count; j++) {
            replay(argv[i], entries[j]->d_name);
            free(entries[j]);
        }
        free(entries);
    }
    return argc > 1 ? 0 : 2;
}
