/* Gives every file of the folders named as arguments to the fuzz target. Fails if there is none. */
#include <string.h>

#include <glib.h>

#include "tests/fuzz/fuzz_target.h"

static size_t replay_folder(const char *folder)
{
    GError *error = NULL;
    GDir *directory = g_dir_open(folder, 0, &error);
    const char *name;
    size_t count = 0;

    if (!directory) {
        fprintf(stderr, "%s\n", error->message);
        exit(1);
    }
    while ((name = g_dir_read_name(directory))) {
        char *path = g_build_filename(folder, name, NULL), *contents;
        uint8_t *exact;
        size_t length;

        if (!g_file_get_contents(path, &contents, &length, &error)) {
            fprintf(stderr, "%s\n", error->message);
            exit(1);
        }
        printf("%s, %zu bytes\n", path, length);
        fflush(stdout);
        /* No NUL behind the data: reading beyond its end is to be noticed. */
        exact = malloc(length + (length == 0));
        must(exact);
        memcpy(exact, contents, length);
        LLVMFuzzerTestOneInput(exact, length);
        count++;
        free(exact);
        g_free(contents);
        g_free(path);
    }
    g_dir_close(directory);
    return count;
}

int main(int count, char **folders)
{
    size_t inputs = 0;

    for (int i = 1; i < count; i++)
        inputs += replay_folder(folders[i]);
    printf("%zu inputs\n", inputs);
    return inputs > 0 ? 0 : 1;
}
