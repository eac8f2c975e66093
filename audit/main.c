/* SPDX-License-Identifier: Apache-2.0
 *
 * ladder-audit -- judges run folders: reads the records, applies the checks, writes verdict.json
 * and timeline.svg, says what it found.
 */
#include "check.h"
#include "memory.h"
#include "output.h"
#include "read.h"
#include "rules.h"
#include "timeline.h"
#include "verdict.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS "--row, --head, --results, --help"

static const char help[] =
    "usage: ladder-audit [--row] RUN_FOLDER...\n"
    "       ladder-audit --head | --results | --help\n"
    "\n"
    "Judges a run by the records of the client, nginx, the instances and Redis in its folder:\n"
    "run.json, redis.json, sale.jtl, nginx.log, history-*.jsonl. Writes verdict.json and\n"
    "timeline.svg there. Prints the reasons and, as the last line, what was expected and found.\n"
    "\n"
    "  --row      print one line of a table for each folder instead\n"
    "  --head[=SERVICE]  print that table's head (default: the shop's); takes no folder\n"
    "  --results  print the results that a run may have, a line each; takes no folder\n"
    "  --help     print this\n"
    "\n"
    "Exit code: 0 the result is an expected one; 1 it is not; 2 it is inconclusive, or the folder\n"
    "cannot be read. With several folders it is the greatest.\n";

enum report { REPORT_REASONS, REPORT_ROW };

static void print_reasons(const struct run *run, const struct verdict *verdict)
{
    char expected[128];
    char got[64];
    for (size_t i = 0; i < run->findings.count; i++)
        printf("- %s\n", run->findings.list[i].sentence);
    if (run->findings.left_out > 0)
        printf("- and %zu more\n", run->findings.left_out);
    verdict_expected(verdict, " or ", expected, sizeof expected);
    verdict_got(run, verdict, got, sizeof got);
    printf("expected %s, got %s\n", expected, got);
}

static void print_result_names(void)
{
    for (enum result rank = 0; rank < RESULT_COUNT; rank++)
        if (result_of(rank) == rank)
            puts(result_name(rank));
}

static int print_head(const char *service)
{
    char names[64];
    const struct rules *rules = rules_find(service != NULL ? service : "shop");
    if (rules != NULL) {
        rules->print_head();
        return 0;
    }
    rules_names(names, sizeof names);
    fprintf(stderr, "ladder-audit: there is no service %s; it must be one of %s\n", service, names);
    return 2;
}

static int judge_folder(const char *folder, enum report report)
{
    int code = 2;
    char error[JSON_ERROR_MAX];
    struct verdict verdict;
    struct run *run = memory_new(1, sizeof *run);
    run_init(run, folder);
    if (!read_spec(run, error)) {
        fprintf(stderr, "ladder-audit: %s/run.json: %s\n", folder, error);
        output_withdraw(folder, "verdict.json");
        output_withdraw(folder, "timeline.svg");
        goto out;
    }
    read_redis(run);
    read_client(run);
    read_nginx(run);
    read_histories(run);
    check_clocks(run);
    run_settle(run);
    check_all(run);
    verdict_reach(run, &verdict);
    bool written = verdict_write(run, &verdict);
    written = timeline_write(run, &verdict) && written;
    if (report == REPORT_ROW)
        run->rules->print_row(run, &verdict);
    else
        print_reasons(run, &verdict);
    code = written ? verdict_exit_code(&verdict) : 2;
out:
    run_free(run);
    free(run);
    return code;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"row", no_argument, NULL, 'r'},
        {"head", optional_argument, NULL, 'd'},
        {"results", no_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    enum report report = REPORT_REASONS;
    int option = 0;
    memory_init();
    opterr = 0;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'r':
            report = REPORT_ROW;
            break;
        case 'd':
            return print_head(optarg);
        case 's':
            print_result_names();
            return 0;
        case 'h':
            fputs(help, stdout);
            return 0;
        default:
            fprintf(stderr, "ladder-audit: there is no option %s; it must be one of %s\n",
                    argv[optind - 1], OPTIONS);
            return 2;
        }
    }
    if (optind == argc) {
        fputs("ladder-audit: no run folder; name at least one, or see --help\n", stderr);
        return 2;
    }
    int worst = 0;
    for (int i = optind; i < argc; i++) {
        int code = judge_folder(argv[i], report);
        worst = code > worst ? code : worst;
    }
    return worst;
}
