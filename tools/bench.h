/* What the three roles of `te bench` share. */
#ifndef TE_TOOLS_BENCH_H
#define TE_TOOLS_BENCH_H

#include "load.h"
#include "node.h"

int te_bench_target_main(int argc, char **argv);
int te_bench_initiator_main(int argc, char **argv);
int te_bench_local_main(int argc, char **argv);

/* What the command line of an initiator asks for: one or more loads that run one after the other. */
struct te_bench_plan {
    struct te_load *loads;
    size_t count;
    bool json;
    struct te_node_options node;
    size_t local_bytes, remote_bytes; /* what the largest of the loads needs */
};

/* default_matrix: without --size, --batch and --operation a table of common cases is run. */
bool te_bench_plan_parse(struct te_bench_plan *plan, int *argc, char ***argv, const char *title, const char *arguments,
                         const char *summary, bool default_matrix);
void te_bench_plan_clear(struct te_bench_plan *plan);

/* Runs all of it against a peer and prints the table, or JSON lines. peer_cpu_seconds may be NULL. */
bool te_bench_plan_run(struct te_bench_plan *plan, struct te_node *node, const char *peer_name,
                       double (*peer_cpu_seconds)(void *), void *peer_data);

/* One row per load. */
void te_report_table_head(void);
void te_report_table_row(const struct te_load *load, const struct te_load_result *result);
void te_report_json(const struct te_load *load, const struct te_load_result *result);

#endif
