/* Connection, notify and probe messages, and what a server answers: classic specification 3.2 to 3.7, appendix A. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "wire/classic/answer.h"

#define EMPTY_HANDSHAKE                                                                                                \
    "{\"local_gid\":\"\",\"local_lid\":0,\"local_nic_path\":\"\",\"payload\":\"\",\"peer_nic_path\":\"\",\"qp_num\":[" \
    "],"                                                                                                               \
    "\"reply_msg\":\"\"}\n"
#define RDMA_HANDSHAKE(ready)                                                                                          \
    "{\"local_gid\":\"fe:80:00:00:00:00:00:00:0a:0b:0c:ff:fe:0d:0e:0f\",\"local_lid\":7,"                              \
    "\"local_nic_path\":\"hostA:15001@mlx5_0\",\"payload\":\"\",\"peer_nic_path\":\"hostB:15002@mlx5_1\","             \
    "\"qp_num\":[101,102],\"ready_ack\":" ready ",\"reply_msg\":\"\"}\n"
#define EFA_HANDSHAKE                                                                                                  \
    "{\"efa_addr\":\"fe80000000000000\",\"local_gid\":\"\",\"local_lid\":0,\"local_nic_path\":"                        \
    "\"hostA:15001@rdmap0s6\",\"payload\":\"\",\"peer_nic_path\":\"hostB:15002@rdmap0s7\",\"qp_num\":[],"              \
    "\"reply_msg\":\"\"}\n"
#define EVERY_FIELD                                                                                                    \
    "{\"barex_port\":-5,\"cxi_addr\":\"ab\",\"efa_addr\":\"cd\",\"jetty_num\":[1,4294967295],\"local_gid\":\"g\","     \
    "\"local_lid\":65535,\"local_nic_path\":\"l\",\"payload\":\"p\",\"peer_nic_path\":\"q\",\"qp_num\":[0],"           \
    "\"ready_ack\":true,\"reply_msg\":\"no\"}\n"

static te_status read_handshake(const char *text, struct te_handshake *handshake)
{
    return te_handshake_read(text, strlen(text), handshake);
}

static void test_handshake_round_trips(void **state)
{
    static const char *const texts[] = {EMPTY_HANDSHAKE, RDMA_HANDSHAKE("false"), RDMA_HANDSHAKE("true"), EFA_HANDSHAKE,
                                        EVERY_FIELD};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++) {
        struct te_handshake handshake;
        GString *text = g_string_new(NULL);

        assert_int_equal(read_handshake(texts[i], &handshake), TE_OK);
        te_handshake_write(text, &handshake);
        assert_string_equal(text->str, texts[i]);
        te_handshake_clear(&handshake);
        g_string_free(text, TRUE);
    }
}

static void test_handshake_from_facts(void **state)
{
    uint32_t queue_pairs[] = {101, 102};
    struct te_handshake handshake = {
        .local_nic_path = "hostA:15001@mlx5_0",
        .peer_nic_path = "hostB:15002@mlx5_1",
        .local_gid = "fe:80:00:00:00:00:00:00:0a:0b:0c:ff:fe:0d:0e:0f",
        .local_lid = 7,
        .queue_pairs = queue_pairs,
        .queue_pair_count = 2,
        .has_ready_ack = true,
        .ready_ack = true,
    };
    GString *text = g_string_new(NULL);

    (void)state;
    te_handshake_write(text, &handshake);
    assert_string_equal(text->str, RDMA_HANDSHAKE("true"));
    g_string_truncate(text, 0);
    te_handshake_write(text, &(struct te_handshake){0});
    assert_string_equal(text->str, EMPTY_HANDSHAKE);
    g_string_free(text, TRUE);
}

static void test_handshake_lenient_fields(void **state)
{
    struct te_handshake handshake;

    (void)state;
    assert_int_equal(read_handshake("{\"payload\":1,\"local_nic_path\":true,\"peer_nic_path\":null,\"reply_msg\":1.5,"
                                    "\"local_lid\":\"7\",\"local_gid\":[1],\"ready_ack\":1,\"qp_num\":[1.9,true,null]}",
                                    &handshake),
                     TE_OK);
    assert_string_equal(handshake.payload, "1");
    assert_string_equal(handshake.local_nic_path, "true");
    assert_string_equal(handshake.peer_nic_path, "");
    assert_string_equal(handshake.reply_message, "1.5");
    assert_int_equal(handshake.local_lid, 0);
    assert_string_equal(handshake.local_gid, "");
    assert_true(handshake.has_ready_ack);
    assert_false(handshake.ready_ack);
    assert_int_equal(handshake.queue_pair_count, 3);
    assert_int_equal(handshake.queue_pairs[0], 1);
    assert_int_equal(handshake.queue_pairs[1], 1);
    assert_int_equal(handshake.queue_pairs[2], 0);
    te_handshake_clear(&handshake);

    assert_int_equal(read_handshake("{\"local_lid\":-1,\"ready_ack\":null,\"qp_num\":null}", &handshake), TE_OK);
    assert_int_equal(handshake.local_lid, 0);
    assert_true(handshake.has_ready_ack);
    assert_false(handshake.ready_ack);
    assert_int_equal(handshake.queue_pair_count, 0);
    te_handshake_clear(&handshake);

    assert_int_equal(read_handshake("null", &handshake), TE_OK);
    assert_string_equal(handshake.local_nic_path, "");
    assert_string_equal(handshake.reply_message, "");
    assert_false(handshake.has_ready_ack);
    assert_null(handshake.efa_address);
    assert_null(handshake.jetties);
    te_handshake_clear(&handshake);
}

/* A real process dies of most of these. */
static void test_handshake_refusals(void **state)
{
    static const char *const texts[] = {"",
                                        "{",
                                        "[1]",
                                        "5",
                                        "\"s\"",
                                        "{\"local_nic_path\":{}}",
                                        "{\"peer_nic_path\":[]}",
                                        "{\"payload\":[1]}",
                                        "{\"reply_msg\":[1]}",
                                        "{\"efa_addr\":{}}",
                                        "{\"cxi_addr\":{}}",
                                        "{\"qp_num\":[-1]}",
                                        "{\"qp_num\":[\"x\"]}",
                                        "{\"qp_num\":[4294967296]}",
                                        "{\"qp_num\":[[]]}",
                                        "{\"qp_num\":5}",
                                        "{\"jetty_num\":[-1]}",
                                        "{\"barex_port\":\"1\"}",
                                        "{\"barex_port\":4294967296}"};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(texts); i++) {
        struct te_handshake handshake;

        assert_int_equal(read_handshake(texts[i], &handshake), TE_MALFORMED_JSON);
    }
}

static void assert_notify_request(const char *text, const char *name, size_t name_length, const char *message,
                                  size_t message_length)
{
    struct te_notify_message result;

    assert_int_equal(te_notify_request_read(text, strlen(text), &result), TE_OK);
    assert_int_equal(result.name_length, name_length);
    assert_memory_equal(result.name, name, name_length + 1);
    assert_int_equal(result.text_length, message_length);
    assert_memory_equal(result.text, message, message_length + 1);
    te_notify_message_clear(&result);
}

static void test_notify(void **state)
{
    static const char appendix[] = "{\"name\":\"na\\\"me/\x7f\",\"notify_msg\":\"m\\u00e9\\ud83d\\ude00\\n\"}\n";
    GString *text = g_string_new(NULL);
    struct te_notify_message message;

    (void)state;
    te_notify_request_write(text, "na\"me/\x7f", 7, "m\xc3\xa9\xf0\x9f\x98\x80\n", 8);
    assert_string_equal(text->str, appendix);
    assert_int_equal(text->len, 0x39);
    assert_notify_request(appendix, "na\"me/\x7f", 7, "m\xc3\xa9\xf0\x9f\x98\x80\n", 8);
    assert_notify_request("null", "", 0, "", 0);
    assert_notify_request("{}", "", 0, "", 0);
    assert_notify_request("{\"name\":5,\"notify_msg\":true}", "5", 1, "true", 4);
    assert_notify_request("{\"name\":\"a\\u0000b\",\"notify_msg\":\"\xff\xfe\"}", "a\0b", 3, "\xff\xfe", 2);
    assert_int_equal(te_notify_request_read("[1]", 3, &message), TE_MALFORMED_JSON);
    assert_int_equal(te_notify_request_read("{\"name\":{}}", 11, &message), TE_MALFORMED_JSON);
    assert_int_equal(te_notify_request_read("{\"notify_msg\":[]}", 17, &message), TE_MALFORMED_JSON);
    g_string_free(text, TRUE);
}

static te_status read_notify_reply(const char *text)
{
    return te_notify_reply_read(text, strlen(text));
}

static void test_notify_reply(void **state)
{
    GString *text = g_string_new(NULL);

    (void)state;
    te_notify_reply_write(text, true);
    assert_string_equal(text->str, "{\"name\":\"\",\"notify_msg\":\"success\"}\n");
    assert_int_equal(read_notify_reply(text->str), TE_OK);
    g_string_truncate(text, 0);
    te_notify_reply_write(text, false);
    assert_string_equal(text->str, "{\"name\":\"\",\"notify_msg\":\"\"}\n");
    assert_int_equal(read_notify_reply(text->str), TE_METADATA);
    assert_int_equal(read_notify_reply("{\"notify_msg\":\"x\"}"), TE_OK);
    assert_int_equal(read_notify_reply("{}"), TE_METADATA);
    assert_int_equal(read_notify_reply("null"), TE_METADATA);
    assert_int_equal(read_notify_reply("[]"), TE_MALFORMED_JSON);
    assert_int_equal(read_notify_reply(""), TE_MALFORMED_JSON);
    g_string_free(text, TRUE);
}

static void test_probe(void **state)
{
    GString *text = g_string_new(NULL);

    (void)state;
    te_probe_request_write(text);
    assert_string_equal(text->str, "{}\n");
    g_string_truncate(text, 0);
    te_probe_reply_write(text);
    assert_string_equal(text->str, "{\"status\":\"success\"}\n");
    assert_int_equal(te_probe_reply_read(text->str, text->len), TE_OK);
    assert_int_equal(te_probe_reply_read("[1]", 3), TE_OK);
    assert_int_equal(te_probe_reply_read("null", 4), TE_OK);
    assert_int_equal(te_probe_reply_read("", 0), TE_MALFORMED_JSON);
    assert_int_equal(te_probe_reply_read("hello", 5), TE_MALFORMED_JSON);
    g_string_free(text, TRUE);
}

/* A service whose answers show who gave them. */
static void reject_connection(void *data, const struct te_handshake *request, struct te_handshake *reply)
{
    (void)data;
    reply->reply_message = g_strdup_printf("not %s", request->peer_nic_path);
}

static bool describe(void *data, GString *text)
{
    if (!*(bool *)data)
        return false;
    g_string_append(text, "{\"it\":\"is me\"}");
    return true;
}

static bool take_notification(void *data, struct te_notify_message *message)
{
    (void)data;
    if (strcmp(message->name, "full") == 0)
        return false;
    g_free(g_steal_pointer(&message->text));
    return true;
}

static void assert_answer(const struct te_classic_service *service, bool has_type, uint8_t type, const char *request,
                          const char *expected)
{
    struct te_frame frame = {.has_type = has_type, .type = type, .text = request, .length = strlen(request)};
    GString *answer = g_string_new("before");
    te_status status = te_classic_answer(&frame, service, answer);

    assert_int_equal(status, expected ? TE_OK : TE_MALFORMED_JSON);
    if (expected) {
        size_t head = strlen("before") + TE_FRAME_LENGTH_BYTES + has_type;

        assert_int_equal(answer->len, head + strlen(expected));
        assert_string_equal(answer->str + head, expected);
        assert_int_equal(answer->str[strlen("before")], strlen(expected) + has_type);
        assert_true(!has_type || answer->str[head - 1] == type);
    } else {
        assert_string_equal(answer->str, "before");
    }
    g_string_free(answer, TRUE);
}

static void test_answers(void **state)
{
    bool installed = true;
    const struct te_classic_service none = {0}, tcp = {.connection = te_classic_accept_connection},
                                    all = {.connection = reject_connection,
                                           .describe = describe,
                                           .notify = take_notification,
                                           .data = &installed};

    (void)state;
    for (int type = 0; type < 3; type++)
        assert_answer(&none, true, (uint8_t)type, "{}", "null\n");
    assert_answer(&none, false, 0, "{}", "null\n");
    assert_answer(&none, true, 3, "{}", "{\"status\":\"success\"}\n");
    assert_answer(&tcp, true, 0, RDMA_HANDSHAKE("false"), EMPTY_HANDSHAKE);
    assert_answer(&tcp, false, 0, "null", EMPTY_HANDSHAKE);
    assert_answer(&all, true, 0, "{\"peer_nic_path\":\"a@b\"}",
                  "{\"local_gid\":\"\",\"local_lid\":0,\"local_nic_path\":\"\",\"payload\":\"\",\"peer_nic_path\":\"\","
                  "\"qp_num\":[],\"reply_msg\":\"not a@b\"}\n");
    assert_answer(&all, true, 1, "[1]", "{\"it\":\"is me\"}\n");
    assert_answer(&all, true, 1, "{} x", "{\"it\":\"is me\"}\n");
    installed = false;
    assert_answer(&all, true, 1, "{}", "null\n");
    assert_answer(&all, true, 2, "{\"name\":\"a\"}", "{\"name\":\"\",\"notify_msg\":\"success\"}\n");
    assert_answer(&all, true, 2, "{\"name\":\"full\"}", "{\"name\":\"\",\"notify_msg\":\"\"}\n");
    assert_answer(&all, true, 3, "5", "{\"status\":\"success\"}\n");
}

static void test_no_answers(void **state)
{
    bool installed = true;
    const struct te_classic_service none = {0}, all = {.connection = reject_connection,
                                                       .describe = describe,
                                                       .notify = take_notification,
                                                       .data = &installed};

    (void)state;
    for (int type = 0; type < 4; type++) {
        assert_answer(&all, true, (uint8_t)type, "", NULL);
        assert_answer(&all, true, (uint8_t)type, "hello", NULL);
        assert_answer(&none, true, (uint8_t)type, "", NULL);
        assert_answer(&none, true, (uint8_t)type, "{", NULL);
    }
    assert_answer(&all, false, 0, "\x7f{}", NULL);
    assert_answer(&all, true, 0, "[1]", NULL);
    assert_answer(&all, true, 2, "[1]", NULL);
    assert_answer(&all, true, 2, "{\"name\":{}}", NULL);
}

/* Damaged in any one byte, or cut anywhere, a message is understood or refused, and what was understood is answered. */
static void test_damage(void **state)
{
    static const char *const texts[] = {RDMA_HANDSHAKE("false"), "{}\n",
                                        "{\"name\":\"na\\\"me\",\"notify_msg\":\"m\\u00e9\\ud83d\\ude00\\n\"}\n",
                                        "{}\n"};
    bool installed = true;
    const struct te_classic_service all = {
        .connection = reject_connection, .describe = describe, .notify = take_notification, .data = &installed};

    (void)state;
    for (size_t type = 0; type < G_N_ELEMENTS(texts); type++) {
        size_t length = strlen(texts[type]);
        char *text = g_strdup(texts[type]);
        struct te_frame frame = {.has_type = true, .type = (uint8_t)type, .text = text};
        GString *answer = g_string_new(NULL);

        for (size_t cut = 0; cut <= length; cut++) {
            frame.length = cut;
            assert_int_equal(te_classic_answer(&frame, &all, answer), cut < length - 1 ? TE_MALFORMED_JSON : TE_OK);
        }
        for (size_t at = 0; at < length; at++) {
            for (unsigned byte = 0; byte < 256; byte++) {
                te_status status;

                text[at] = (char)byte;
                g_string_truncate(answer, 0);
                status = te_classic_answer(&frame, &all, answer);
                assert_true(status == TE_OK || status == TE_MALFORMED_JSON);
                assert_int_equal(status == TE_OK, answer->len > 0);
            }
            text[at] = texts[type][at];
        }
        g_string_free(answer, TRUE);
        g_free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_handshake_round_trips),
        cmocka_unit_test(test_handshake_from_facts),
        cmocka_unit_test(test_handshake_lenient_fields),
        cmocka_unit_test(test_handshake_refusals),
        cmocka_unit_test(test_notify),
        cmocka_unit_test(test_notify_reply),
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_no_answers),
        cmocka_unit_test(test_damage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
