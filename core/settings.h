/*
 * Every setting of the library, from one table (settings.def): name, alias, group, default, range, help.
 * Sources, later ones win: defaults, the file named by TE_CONFIG (YAML; JSON is read by the same parser), the
 * environment. Read when an engine is created.
 */
#ifndef TE_CORE_SETTINGS_H
#define TE_CORE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

enum { TE_SETTINGS_ROWS_MAX = 192 };

/* A text is NULL when it is not given. */
struct te_settings {
    /* engine */
    char *file_name;                            /* TE_CONFIG */
    bool force_tcp;                             /* MC_FORCE_TCP, presence */
    bool use_ipv6;                              /* MC_USE_IPV6, presence */
    uint64_t minimum_port;                      /* MC_MIN_RPC_PORT, MC_MIN_PRC_PORT */
    uint64_t maximum_port;                      /* MC_MAX_RPC_PORT, MC_MAX_PRC_PORT */
    uint64_t handshake_port;                    /* MC_HANDSHAKE_PORT */
    uint64_t handshake_listen_backlog;          /* MC_HANDSHAKE_LISTEN_BACKLOG */
    uint64_t handshake_connect_timeout_seconds; /* MC_HANDSHAKE_CONNECT_TIMEOUT */
    uint64_t handshake_reply_timeout_ms; /* TE_HANDSHAKE_REPLY_TIMEOUT_MS, 10000: how long a peer may take to answer a
                                            control call */
    uint64_t handshake_maximum_length;   /* MC_HANDSHAKE_MAX_LENGTH */
    bool disable_metadata_cache;         /* MC_DISABLE_METACACHE, presence */
    uint64_t metadata_refresh_interval_seconds; /* MC_TE_METADATA_REFRESH_INTERVAL_SECONDS */
    int64_t slice_timeout_seconds;              /* MC_SLICE_TIMEOUT, -1 off */
    char *log_level;                            /* MC_LOG_LEVEL: TRACE, INFO, WARNING, ERROR */
    char *custom_topology_file;                 /* MC_CUSTOM_TOPO_JSON */
    bool metrics;                               /* MC_TE_METRIC */
    uint64_t metrics_interval_seconds;          /* MC_TE_METRIC_INTERVAL_SECONDS */
    bool use_tent; /* MC_USE_TENT / MC_USE_TEV1: set and not one of "", 0, false, off, no */
    /* tcp */
    bool tcp_connection_pool;    /* MC_TCP_ENABLE_CONNECTION_POOL, default true (as the released wheel) */
    uint64_t tcp_lanes_per_peer; /* MC_TCP_LANES_PER_PEER, MC_TCP_MAX_CONNECTIONS_PER_PEER; 4, 1..16 */
    uint64_t
        tcp_slice_size_bytes; /* MC_TCP_SLICE_SIZE: the piece a target takes before it looks at other connections */
    bool tcp_force_version_1; /* MC_TCP_PROTO is exactly "1" */
    uint64_t tcp_status_timeout_seconds;   /* MC_TCP_STATUS_TIMEOUT_SEC; 0 = not given */
    uint64_t tcp_progress_timeout_seconds; /* MC_TCP_PROGRESS_TIMEOUT_SEC; 0 = not given */
    uint64_t tcp_silence_timeout_ms; /* TE_TCP_SILENCE_TIMEOUT_MS, 10000: nothing moved in either direction while work
                                        waits; the smaller of the two above where one of them is given */
    uint64_t tcp_fence_timeout_ms; /* TE_TCP_FENCE_TIMEOUT_MS, 500: how long a half-closed connection may take before it
                                      is reset */
    uint64_t tcp_idle_timeout_seconds;  /* TE_TCP_IDLE_TIMEOUT_SEC, 300: an unused connection is closed */
    uint64_t tcp_stripe_bytes;          /* TE_TCP_STRIPE_BYTES: larger requests are cut into slices of this size */
    char *tcp_local_congestion_control; /* TE_TCP_LOCAL_CONGESTION_CONTROL, "reno"; "" = leave alone. For connections
                                           within one host */
    uint64_t io_threads;                /* TE_IO_THREADS, 0 = automatic */
    uint64_t spin_us; /* TE_SPIN_US, 50: how long an I/O thread polls after activity before it sleeps */

    unsigned char sources[TE_SETTINGS_ROWS_MAX]; /* of each row: for te_settings_value() */
};

/* Reads all sources. Malformed values are warned about (once per process and value) and replaced as the message says;
 * unknown MC_* and TE_* names likewise. Fails only for the settings file: TE_INVALID_ARGUMENT if it cannot be read or
 * is not one mapping of names to single values, with line and column; TE_MEMORY. Set-user-id programs ignore the
 * environment, TE_CONFIG included. The environment must not be changed by another thread meanwhile. */
te_status te_settings_load(struct te_settings *settings);
void te_settings_clear(struct te_settings *settings);

/* As te_settings_load with the defaults and the text of a settings file alone; file_name is for messages. A file is one
 * YAML (or JSON) mapping; a setting goes by its name in the environment or by that in lower case without MC_ or TE_. */
te_status te_settings_from_text(struct te_settings *settings, const char *file_name, const char *text, size_t length);

/* One row of the table, for tools and documentation. */
struct te_setting_row {
    const char *name;
    const char *alias;        /* or NULL */
    const char *group;        /* a heading */
    const char *default_text; /* NULL: none, and help says what counts where the setting is not given */
    const char *range;        /* for people; NULL: the name has no effect, and help says why */
    const char *help;
};
const struct te_setting_row *te_settings_rows(size_t *count);

/* Where a value comes from. A malformed number or choice is as none. */
enum te_settings_source { TE_FROM_DEFAULT, TE_FROM_FILE, TE_FROM_ENVIRONMENT };

/* The value in force as text (g_malloc'ed), "" where there is none; written as the default is, so that equal values are
 * equal texts. source: where it came from; may be NULL. */
char *te_settings_value(const struct te_settings *settings, size_t row, enum te_settings_source *source);

#endif
