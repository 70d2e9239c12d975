#include "wire/classic/handshake.h"

#include <json-c/json.h>

#include "wire/classic/json_text.h"

void te_handshake_clear(struct te_handshake *handshake)
{
    g_free(handshake->payload);
    g_free(handshake->local_nic_path);
    g_free(handshake->peer_nic_path);
    g_free(handshake->local_gid);
    g_free(handshake->queue_pairs);
    g_free(handshake->reply_message);
    g_free(handshake->efa_address);
    g_free(handshake->cxi_address);
    g_free(handshake->jetties);
    *handshake = (struct te_handshake){0};
}

static void write_text(GString *text, const char *key, const char *value)
{
    te_json_key(text, key);
    te_json_string(text, value);
}

static void write_numbers(GString *text, const char *key, const uint32_t *numbers, size_t count)
{
    te_json_key(text, key);
    te_json_begin_array(text);
    for (size_t i = 0; i < count; i++)
        te_json_unsigned(text, numbers[i]);
    te_json_end_array(text);
}

void te_handshake_write(GString *text, const struct te_handshake *handshake)
{
    te_json_begin_object(text);
    if (handshake->has_barex_port) {
        te_json_key(text, "barex_port");
        te_json_signed(text, handshake->barex_port);
    }
    if (handshake->cxi_address)
        write_text(text, "cxi_addr", handshake->cxi_address);
    if (handshake->efa_address)
        write_text(text, "efa_addr", handshake->efa_address);
    if (handshake->jetties)
        write_numbers(text, "jetty_num", handshake->jetties, handshake->jetty_count);
    write_text(text, "local_gid", handshake->local_gid);
    te_json_key(text, "local_lid");
    te_json_unsigned(text, handshake->local_lid);
    write_text(text, "local_nic_path", handshake->local_nic_path);
    write_text(text, "payload", handshake->payload);
    write_text(text, "peer_nic_path", handshake->peer_nic_path);
    write_numbers(text, "qp_num", handshake->queue_pairs, handshake->queue_pair_count);
    if (handshake->has_ready_ack) {
        te_json_key(text, "ready_ack");
        te_json_boolean(text, handshake->ready_ack);
    }
    write_text(text, "reply_msg", handshake->reply_message);
    te_json_end_object(text);
    te_json_end_line(text);
}

/* Optional texts stay NULL when they are absent. */
static te_status read_texts(struct json_object *root, struct te_handshake *handshake)
{
    const struct {
        const char *key;
        char **text;
        bool optional;
    } fields[] = {
        {"payload", &handshake->payload, false},
        {"local_nic_path", &handshake->local_nic_path, false},
        {"peer_nic_path", &handshake->peer_nic_path, false},
        {"reply_msg", &handshake->reply_message, false},
        {"efa_addr", &handshake->efa_address, true},
        {"cxi_addr", &handshake->cxi_address, true},
    };

    for (size_t i = 0; i < G_N_ELEMENTS(fields); i++) {
        te_status status;

        if (fields[i].optional && !te_json_has(root, fields[i].key))
            continue;
        status = te_json_to_text(te_json_member(root, fields[i].key), fields[i].text, NULL);
        if (status != TE_OK)
            return status;
    }
    return TE_OK;
}

static te_status read_numbers(struct json_object *array, uint32_t **numbers, size_t *count)
{
    size_t length;
    uint32_t *list;
    te_status status = te_json_array_length(array, &length);

    if (status != TE_OK)
        return status;
    list = g_try_new0(uint32_t, MAX(length, 1));
    if (!list)
        return te_fail(TE_MEMORY, "no memory for %zu numbers", length);
    for (size_t i = 0; i < length; i++) {
        uint64_t number;

        status = te_json_to_unsigned(json_object_array_get_idx(array, i), UINT32_MAX, &number);
        if (status != TE_OK) {
            g_free(list);
            return status;
        }
        list[i] = (uint32_t)number;
    }
    *numbers = list;
    *count = length;
    return TE_OK;
}

/* Of another type they are as if absent. The gid has no other way to be malformed here: who uses it parses it. */
static te_status read_lenient(struct json_object *root, struct te_handshake *handshake)
{
    struct json_object *lid = te_json_member(root, "local_lid"), *gid = te_json_member(root, "local_gid"),
                       *ready = te_json_member(root, "ready_ack");
    uint64_t number;

    if (json_object_is_type(lid, json_type_int) && te_json_to_unsigned(lid, UINT32_MAX, &number) == TE_OK)
        handshake->local_lid = (uint16_t)number;
    handshake->has_ready_ack = te_json_has(root, "ready_ack");
    handshake->ready_ack = json_object_is_type(ready, json_type_boolean) && json_object_get_boolean(ready);
    return te_json_to_text(json_object_is_type(gid, json_type_string) ? gid : NULL, &handshake->local_gid, NULL);
}

static te_status read_fields(struct json_object *root, struct te_handshake *handshake)
{
    te_status status = read_texts(root, handshake);
    int64_t port;

    if (status == TE_OK)
        status = read_lenient(root, handshake);
    if (status == TE_OK)
        status = read_numbers(te_json_member(root, "qp_num"), &handshake->queue_pairs, &handshake->queue_pair_count);
    if (status == TE_OK && te_json_has(root, "jetty_num"))
        status = read_numbers(te_json_member(root, "jetty_num"), &handshake->jetties, &handshake->jetty_count);
    if (status == TE_OK && te_json_has(root, "barex_port")) {
        status = te_json_to_signed(te_json_member(root, "barex_port"), INT32_MIN, INT32_MAX, &port);
        if (status == TE_OK) {
            handshake->has_barex_port = true;
            handshake->barex_port = (int32_t)port;
        }
    }
    return status;
}

te_status te_handshake_read(const char *text, size_t length, struct te_handshake *handshake)
{
    struct te_handshake result = {0};
    struct json_object *root;
    te_status status = te_json_parse_object(text, length, &root);

    if (status != TE_OK)
        return status;
    status = read_fields(root, &result);
    json_object_put(root);
    if (status != TE_OK) {
        te_handshake_clear(&result);
        return status;
    }
    *handshake = result;
    return TE_OK;
}
