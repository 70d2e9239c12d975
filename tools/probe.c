/* te probe: asks a peer's control port whether it answers. */
#include <stdio.h>

#include "node.h"
#include "te.h"

/* What a person can do about a result of te_probe(). */
static const char *advice(int code)
{
    switch (code) {
    case -101:
        return "The host part of the name does not resolve; check its spelling or use a numeric address.";
    case -102:
        return "Nothing answers there. Is the process running, is the port the one it printed, and does a firewall let "
               "it through?";
    case -103:
        return "Something answers there, but it is no transfer engine; check the port.";
    case -200:
        return "The metadata store does not know that name, or cannot be reached; check --metadata.";
    default:
        return "`te probe --help` tells what a name looks like.";
    }
}

int te_probe_main(int argc, char **argv)
{
    struct te_node_options options = {0};
    const GOptionEntry entries[] = {
        {"metadata", 0, 0, G_OPTION_ARG_STRING, &options.metadata, "Metadata service (P2PHANDSHAKE)", "CONNECTION"},
        {0},
    };
    if (!te_options_parse(&argc, &argv, entries, "probe", "NAME",
                          "Asks the peer NAME, HOST:PORT as the peer printed it, whether it answers."))
        return TE_EXIT_USAGE;
    if (argc != 2) {
        te_node_options_clear(&options);
        te_complain("give one name, for example: te probe 127.0.0.1:15347");
        return TE_EXIT_USAGE;
    }
    const char *name = argv[1];
    struct te_node node;
    bool opened = te_node_open(&node, &options, 0);
    te_node_options_clear(&options);
    if (!opened)
        return TE_EXIT_FAILED;
    int64_t start = te_now_ns();
    int code = te_probe(node.engine, name);
    double milliseconds = (double)(te_now_ns() - start) / 1e6;
    if (code == 0)
        printf("%s answers, after %.2f ms\n", name, milliseconds);
    else
        te_complain("%s does not answer: %s (%d, after %.0f ms)\n    %s", name, te_last_error(), code, milliseconds,
                    advice(code));
    te_node_close(&node);
    return code == 0 ? TE_EXIT_DONE : TE_EXIT_FAILED;
}
