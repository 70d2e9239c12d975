/* te bench initiator and te bench local. */
#include "bench.h"

#include <stdio.h>

#include "companion.h"
#include "te.h"

int te_bench_initiator_main(int argc, char **argv)
{
    struct te_bench_plan plan;
    struct te_node node;
    if (!te_bench_plan_parse(&plan, &argc, &argv, "bench initiator", "TARGET",
                             "Measures transfers to and from TARGET, the name that a target printed.", false))
        return TE_EXIT_USAGE;
    if (argc != 2) {
        te_complain("give the name of one target, for example: te bench initiator 127.0.0.1:15347");
        te_bench_plan_clear(&plan);
        return TE_EXIT_USAGE;
    }
    bool works = te_node_open(&node, &plan.node, plan.local_bytes);
    if (works) {
        works = te_bench_plan_run(&plan, &node, argv[1], NULL, NULL);
        te_node_close(&node);
    }
    te_bench_plan_clear(&plan);
    return works ? TE_EXIT_DONE : TE_EXIT_FAILED;
}

static bool run_local(struct te_bench_plan *plan)
{
    struct te_companion companion;
    struct te_node node;
    bool works = te_companion_start(&companion, &plan->node, plan->remote_bytes);
    if (!works)
        return false;
    works = te_node_open(&node, &plan->node, plan->local_bytes);
    if (works) {
        works = te_bench_plan_run(plan, &node, companion.name, te_companion_cpu_seconds, &companion);
        te_node_close(&node);
    }
    return te_companion_stop(&companion) && works;
}

int te_bench_local_main(int argc, char **argv)
{
    struct te_bench_plan plan;
    if (!te_bench_plan_parse(&plan, &argc, &argv, "bench local", NULL,
                             "Starts a target process on this host and measures transfers with it.", true))
        return TE_EXIT_USAGE;
    bool works = run_local(&plan);
    te_bench_plan_clear(&plan);
    return works ? TE_EXIT_DONE : TE_EXIT_FAILED;
}
