/*
 * One engine of this library, driven by JSON: one command per line on stdin, one reply per line on stdout. The
 * counterpart of mooncake_peer.py, through nothing but the public C headers. README.md describes the commands.
 *
 * A reply holds either the results of the command or "error"; the process ends by "exit", by the end of stdin, or by a
 * signal. The engine's log goes to stderr.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <glib.h>
#include <json-c/json.h>

#include "te_peer.h"
#include "transfer_engine_c.h"
#include "transfer_engine_ext.h"

/* The name that peers open: the engine's address, an IPv6 host in brackets. */
static char *engine_name(transfer_engine_t engine)
{
    char address[512];
    if (getLocalIpAndPort(engine, address, sizeof(address)) != 0)
        return g_strdup("");
    char *port = strrchr(address, ':');
    if (!port || address[0] == '[' || !memchr(address, ':', (size_t)(port - address)))
        return g_strdup(address);
    *port++ = '\0';
    return g_strdup_printf("[%s]:%s", address, port);
}

static void run_info(struct peer *peer)
{
    json_object *buffers = json_object_new_array();
    for (guint i = 0; i < peer->memories->len; i++) {
        const struct memory *memory = g_ptr_array_index(peer->memories, i);
        json_object *buffer = json_object_new_object();
        json_object_object_add(buffer, "addr", json_object_new_uint64((uintptr_t)memory->bytes));
        json_object_object_add(buffer, "size", json_object_new_uint64(memory->size));
        json_object_array_add(buffers, buffer);
    }
    answer_text(peer, "name", peer->name);
    answer_number(peer, "rpc_port", te_port(peer->engine));
    answer_number(peer, "pid", getpid());
    json_object_object_add(peer->reply, "buffers", buffers);
}

static void run_init(struct peer *peer)
{
    if (peer->engine) {
        refuse(peer, "already initialised");
        return;
    }
    const char *metadata = text(peer, "metadata", "P2PHANDSHAKE"), *local = text(peer, "local", "127.0.0.1");
    transfer_engine_t engine = createTransferEngine(metadata, local, "", 0, 0);
    if (!engine || !installTransport(engine, text(peer, "protocol", "tcp"), NULL)) {
        answer_result(peer, -1);
        destroyTransferEngine(engine);
        return;
    }
    peer->engine = engine;
    peer->name = engine_name(engine);
    answer_result(peer, 0);
    run_info(peer);
}

static void run_rpc_port(struct peer *peer)
{
    answer_number(peer, "ret", te_port(peer->engine));
}

static void run_last_error(struct peer *peer)
{
    answer_text(peer, "text", te_last_error());
}

static void run_exit(struct peer *peer)
{
    peer->exiting = true;
}

static const struct {
    const char *name;
    void (*run)(struct peer *peer);
    bool needs_engine;
} commands[] = {
    {"init", run_init, false},
    {"info", run_info, true},
    {"rpc_port", run_rpc_port, true},
    {"last_error", run_last_error, false},
    {"exit", run_exit, false},
    {"register", run_register, true},
    {"register_batch", run_register_batch, true},
    {"allocate", run_allocate, false},
    {"unregister", run_unregister, true},
    {"unregister_batch", run_unregister_batch, true},
    {"fill", run_fill, false},
    {"checksum", run_checksum, false},
    {"peek", run_peek, false},
    {"probe", run_probe, true},
    {"first_buffer", run_first_buffer, true},
    {"notifies", run_notifies, true},
    {"open", run_open, true},
    {"notify", run_notify, true},
    {"write", run_write, true},
    {"read", run_read, true},
    {"batch_write", run_write, true},
    {"batch_read", run_read, true},
    {"submit_write", run_submit, true},
    {"submit_batch", run_submit, true},
    {"status", run_status, true},
    {"wait", run_wait, true},
    {"await", run_await, true},
    {"task", run_task, true},
    {"cancel", run_cancel, true},
    {"free", run_free, true},
};

static void carry_out(struct peer *peer)
{
    const char *name = text(peer, "cmd", "");
    for (size_t i = 0; i < G_N_ELEMENTS(commands); i++) {
        if (strcmp(commands[i].name, name) != 0)
            continue;
        if (commands[i].needs_engine && !peer->engine)
            refuse(peer, "not initialised");
        else
            commands[i].run(peer);
        return;
    }
    refuse(peer, "unknown command '%s'", name);
}

static void say(json_object *reply)
{
    puts(json_object_to_json_string_ext(reply, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
    fflush(stdout);
}

static void greet(void)
{
    json_object *greeting = json_object_new_object();
    json_object_object_add(greeting, "ready", json_object_new_string("transfer_engine"));
    json_object_object_add(greeting, "version", json_object_new_string(te_version()));
    json_object_object_add(greeting, "pid", json_object_new_int(getpid()));
    say(greeting);
    json_object_put(greeting);
}

static void answer_line(struct peer *peer, const char *line)
{
    peer->reply = json_object_new_object();
    peer->command = json_tokener_parse(line);
    if (json_object_is_type(peer->command, json_type_object)) {
        gint64 begin = g_get_monotonic_time();
        carry_out(peer);
        json_object *seconds = json_object_new_double((double)(g_get_monotonic_time() - begin) / 1e6);
        json_object_object_add(peer->reply, "seconds", seconds);
        if (given(peer, "tag"))
            json_object_object_add(peer->reply, "tag", json_object_get(field_of(peer->command, "tag")));
    } else {
        refuse(peer, "not a JSON object");
    }
}

static void peer_close(struct peer *peer)
{
    destroyTransferEngine(peer->engine);
    peer->engine = NULL;
}

int main(void)
{
    struct peer peer = {
        .memories = g_ptr_array_new(),
        .segments = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL),
    };
    char *line = NULL;
    size_t room = 0;
    greet();
    while (!peer.exiting && getline(&line, &room, stdin) > 0) {
        if (g_strstrip(line)[0] == '\0')
            continue;
        answer_line(&peer, line);
        if (peer.exiting) {
            peer_close(&peer);
            json_object_object_add(peer.reply, "bye", json_object_new_boolean(1));
        }
        say(peer.reply);
        json_object_put(peer.reply);
        json_object_put(peer.command);
    }
    peer_close(&peer);
    for (guint i = 0; i < peer.memories->len; i++)
        memory_free(g_ptr_array_index(peer.memories, i));
    g_ptr_array_free(peer.memories, TRUE);
    g_hash_table_destroy(peer.segments);
    g_free(peer.name);
    free(line);
    return 0;
}
