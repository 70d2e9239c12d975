/*
 * Our calls to peers. A scripted peer plays the recorded answers of tests/vectors to a running engine, whose requests
 * must be of the recorded form and whose results the recorded ones (failures where the real engine died). Then peers
 * that a recording does not show: silent, dead, named otherwise.
 */
#include <stdio.h>

#include "tests/unit/wire_vector.h"

#include "classic/dialect.h"
#include "classic/internal.h"
#include "core/clock.h"
#include "core/notification.h"
#include "core/peer.h"
#include "tests/unit/both_families.h"
#include "tests/unit/socket_helpers.h"
#include "wire/classic/descriptor.h"
#include "wire/classic/frame.h"
#include "wire/classic/tcp_header.h"

enum { RECORDED_BUFFER_BYTES = 1024 * 1024 };
#define RECORDED_CONTROL_PORT "15401"
#define RECORDED_DATA_PORT    "15402"

static void replace_port(GString *bytes, const char *recorded, uint16_t port)
{
    char text[8];

    g_snprintf(text, sizeof(text), "%05u", port);
    assert_int_equal(strlen(text), strlen(recorded));
    for (char *found = bytes->str; (found = memmem(found, bytes->len - (size_t)(found - bytes->str), recorded, 5));)
        memcpy(found, text, 5);
}

/* ---- A peer that plays a recording ---- */

struct scripted_peer {
    const struct vector *vector; /* NULL: every request is answered by answer_control */
    int control, data;
    uint16_t control_port, data_port;
    GThread *control_thread, *data_thread;
    _Atomic size_t call; /* which recorded data or notify exchange is being played */
    _Atomic unsigned control_calls, data_calls;
    _Atomic bool bad_request;
};

static GString *receive_frame(int descriptor)
{
    GString *frame = g_string_new(NULL);
    uint64_t length;

    g_string_set_size(frame, TE_FRAME_LENGTH_BYTES);
    if (!test_receive(descriptor, frame->str, frame->len))
        return frame;
    memcpy(&length, frame->str, sizeof(length));
    assert_true(length < 16 * 1024 * 1024);
    g_string_set_size(frame, TE_FRAME_LENGTH_BYTES + length);
    if (!test_receive(descriptor, frame->str + TE_FRAME_LENGTH_BYTES, length))
        g_string_truncate(frame, 0);
    return frame;
}

/* The recorded connection of a protocol, counted from 0 among those whose request has this type. SIZE_MAX if none. */
static size_t find_control_connection(const struct vector *vector, uint8_t type)
{
    for (size_t i = 0; i < vector_connections(vector); i++) {
        GString *request = vector_stream(vector, i, "c2s");
        bool found = strcmp(vector_protocol(vector, i), "classic-handshake") == 0 &&
                     request->len > TE_FRAME_LENGTH_BYTES && (uint8_t)request->str[TE_FRAME_LENGTH_BYTES] == type;

        g_string_free(request, TRUE);
        if (found)
            return i;
    }
    return SIZE_MAX;
}

/* What must be equal in two requests of one type: all of a notification, the keys of a descriptor. */
static bool same_request(const GString *ours, const GString *recorded)
{
    struct te_segment_descriptor *descriptor;
    size_t head = TE_FRAME_LENGTH_BYTES + 1;
    bool same;

    if (ours->str[TE_FRAME_LENGTH_BYTES] != TE_FRAME_METADATA)
        return g_string_equal(ours, recorded);
    if (te_descriptor_read(ours->str + head, ours->len - head, &descriptor) != TE_OK)
        return false;
    same = strcmp(descriptor->protocol, "tcp") == 0 && descriptor->tcp_protocol_version == 2 &&
           descriptor->tcp_data_port != 0 && ours->str[ours->len - 1] == '\n';
    te_segment_descriptor_unref(descriptor);
    return same;
}

static void answer_control(struct scripted_peer *peer, int descriptor)
{
    GString *request = receive_frame(descriptor), *recorded, *answer;
    size_t connection;

    if (request->len <= TE_FRAME_LENGTH_BYTES) {
        g_string_free(request, TRUE);
        return;
    }
    connection = find_control_connection(peer->vector, (uint8_t)request->str[TE_FRAME_LENGTH_BYTES]);
    if (connection == SIZE_MAX) {
        atomic_store(&peer->bad_request, true);
        g_string_free(request, TRUE);
        return;
    }
    recorded = vector_stream(peer->vector, connection, "c2s");
    if (!same_request(request, recorded))
        atomic_store(&peer->bad_request, true);
    answer = vector_stream(peer->vector, connection, "s2c");
    replace_port(answer, RECORDED_CONTROL_PORT, peer->control_port);
    replace_port(answer, RECORDED_DATA_PORT, peer->data_port);
    test_send(descriptor, answer->str, answer->len);
    g_string_free(request, TRUE);
    g_string_free(recorded, TRUE);
    g_string_free(answer, TRUE);
}

/* Index of the recorded data connection of the present call; SIZE_MAX: none. */
static size_t present_data_connection(struct scripted_peer *peer)
{
    size_t wanted = atomic_load(&peer->call), seen = 0;

    for (size_t i = 0; i < vector_connections(peer->vector); i++)
        if (strcmp(vector_protocol(peer->vector, i), "classic-data") == 0 && seen++ == wanted)
            return i;
    return SIZE_MAX;
}

/* Whether the recorded peer ended the connection before its client did. */
static bool peer_ends_first(const struct vector *vector, size_t connection)
{
    struct json_object *sequence = vector_member(vector->root, "sequence");

    for (size_t i = 0; i < json_object_array_length(sequence); i++) {
        struct json_object *entry = json_object_array_get_idx(sequence, i);
        const char *event = vector_text(entry, "event");

        if (json_object_get_uint64(vector_member(entry, "conn")) == connection && event &&
            strcmp(event, "connect") != 0)
            return strcmp(vector_text(entry, "dir"), "s2c") == 0;
    }
    return false;
}

/* What we do and the recorded client does not: after a write in version 1, which is not acknowledged, its last byte is
 * read back. */
static bool answer_read_back(struct scripted_peer *peer, int descriptor, const GString *write)
{
    struct te_tcp_request written = te_tcp_request_decode((const uint8_t *)write->str), asked;
    uint8_t header[TE_TCP_REQUEST_BYTES];

    if (!test_receive(descriptor, header, sizeof(header)))
        return false;
    asked = te_tcp_request_decode(header);
    if (asked.write || asked.version_2 || asked.length != 1 || asked.address != written.address + written.length - 1)
        atomic_store(&peer->bad_request, true);
    return test_send(descriptor, &write->str[write->len - 1], 1);
}

/* Plays the recorded exchange of the present call; the client may use one connection for several. False: over. */
static bool answer_data(struct scripted_peer *peer, int descriptor)
{
    GString *request, *ours, *answer;
    size_t connection;
    bool goes_on = false;
    char first;

    if (recv(descriptor, &first, 1, MSG_PEEK) != 1)
        return false;
    connection = present_data_connection(peer);
    if (connection == SIZE_MAX)
        return false;
    request = vector_stream(peer->vector, connection, "c2s");
    answer = vector_stream(peer->vector, connection, "s2c");
    ours = g_string_new(NULL);
    g_string_set_size(ours, request->len);
    if (test_receive(descriptor, ours->str, ours->len)) {
        memset(request->str + 17, 0, 7); /* padding: arbitrary in the recording, zero from us */
        if (!g_string_equal(ours, request))
            atomic_store(&peer->bad_request, true);
        goes_on = test_send(descriptor, answer->str, answer->len) && !peer_ends_first(peer->vector, connection);
        if (ours->str[16] == 0x01)
            goes_on = answer_read_back(peer, descriptor, ours);
    }
    g_string_free(request, TRUE);
    g_string_free(answer, TRUE);
    g_string_free(ours, TRUE);
    return goes_on;
}

static gpointer serve_control(gpointer data)
{
    struct scripted_peer *peer = data;
    int descriptor;

    while ((descriptor = accept4(peer->control, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        atomic_fetch_add(&peer->control_calls, 1);
        test_socket_patience(descriptor);
        answer_control(peer, descriptor);
        close(descriptor);
    }
    return NULL;
}

static gpointer serve_data(gpointer data)
{
    struct scripted_peer *peer = data;
    int descriptor;

    while ((descriptor = accept4(peer->data, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        atomic_fetch_add(&peer->data_calls, 1);
        test_socket_patience(descriptor);
        while (answer_data(peer, descriptor))
            ;
        close(descriptor);
    }
    return NULL;
}

static void peer_start(struct scripted_peer *peer, const struct vector *vector)
{
    memset(peer, 0, sizeof(*peer));
    peer->vector = vector;
    peer->control = test_listen(&peer->control_port);
    peer->data = test_listen(&peer->data_port);
    assert_true(peer->control >= 0 && peer->data >= 0);
    peer->control_thread = g_thread_new("control", serve_control, peer);
    peer->data_thread = g_thread_new("data", serve_data, peer);
}

static void peer_stop(struct scripted_peer *peer)
{
    shutdown(peer->control, SHUT_RDWR);
    shutdown(peer->data, SHUT_RDWR);
    g_thread_join(peer->control_thread);
    g_thread_join(peer->data_thread);
    close(peer->control);
    close(peer->data);
}

/* ---- Playing ---- */

static struct te_classic *create(void)
{
    struct te_classic *classic = te_classic_create("P2PHANDSHAKE", "127.0.0.1", NULL, 0, 1);

    assert_non_null(classic);
    return classic;
}

struct replay {
    char *memory;
    unsigned opened, refused, transfers, notifications;
};

/* "xfer r OFFSET REMOTE LENGTH" with the result "submit S task0 rc=R st=T bytes=B ...". */
static void play_transfer(const struct vector *vector, struct te_classic *classic, int32_t segment,
                          struct replay *replay, size_t index)
{
    struct json_object *outcome = vector_member(vector->root, "outcome");
    const char *call = vector_text(json_object_array_get_idx(outcome, index), "call");
    const char *result = vector_text(json_object_array_get_idx(outcome, index), "result");
    struct transfer_request request = {.target_id = segment};
    struct transfer_status status;
    unsigned long offset, remote, length, bytes;
    int submitted, code, state;
    char direction;
    batch_id_t batch = te_classic_allocate_batch_id(classic, 1);

    assert_int_equal(sscanf(call, "xfer %c %lu %lx %lu", &direction, &offset, &remote, &length), 4);
    assert_int_equal(sscanf(result, "submit %d task0 rc=%d st=%d bytes=%lu", &submitted, &code, &state, &bytes), 4);
    request.opcode = direction == 'r' ? OPCODE_READ : OPCODE_WRITE;
    request.source = replay->memory + offset;
    request.target_offset = remote;
    request.length = length;
    vector_assert(vector, te_classic_submit_transfer(classic, batch, &request, 1) == submitted);
    if (submitted == 0) {
        vector_assert(vector,
                      te_classic_wait_task(classic, batch, 0, TEST_PATIENCE_SECONDS * TE_NS_PER_SECOND, &status) == 0);
        vector_assert(vector, status.status == state);
        vector_assert(vector, status.transferred_bytes == bytes);
    } else {
        vector_assert(vector, te_classic_get_transfer_status(classic, batch, 0, &status) == code);
    }
    vector_assert(vector, te_classic_free_batch_id(classic, batch) == 0);
    replay->transfers++;
}

static void play_notification(const struct vector *vector, struct te_classic *classic, int32_t segment,
                              struct replay *replay, size_t index)
{
    struct json_object *outcome = vector_member(vector->root, "outcome");
    const char *call = vector_text(json_object_array_get_idx(outcome, index), "call");
    const char *result = vector_text(json_object_array_get_idx(outcome, index), "result");
    char name[64], text[64];
    notify_msg_t message = {name, text};
    int expected;

    assert_int_equal(sscanf(call, "notify %63s %63s", name, text), 2);
    assert_int_equal(sscanf(result, "notify %d", &expected), 1);
    vector_assert(vector, te_classic_gen_notify_in_engine(classic, (uint64_t)segment, message) == expected);
    replay->notifications++;
}

static void play_rest(const struct vector *vector, struct te_classic *classic, struct scripted_peer *peer,
                      int32_t segment, struct replay *replay)
{
    struct json_object *outcome = vector_member(vector->root, "outcome");

    for (size_t i = 1; i < json_object_array_length(outcome); i++) {
        const char *call = vector_text(json_object_array_get_idx(outcome, i), "call");

        if (g_str_has_prefix(call, "xfer ")) {
            play_transfer(vector, classic, segment, replay, i);
            atomic_fetch_add(&peer->call, 1);
        } else {
            play_notification(vector, classic, segment, replay, i);
        }
    }
}

static void play(const struct vector *vector, void *data)
{
    struct replay *replay = data;
    struct scripted_peer peer;
    struct te_classic *classic = create();
    const char *result = vector_outcome(vector, "open PEER", 0);
    char name[32];
    int32_t segment;

    peer_start(&peer, vector);
    g_snprintf(name, sizeof(name), "127.0.0.1:%u", peer.control_port);
    segment = te_classic_open_segment(classic, name);
    if (g_str_has_prefix(result, "open 1")) {
        vector_assert(vector, segment == 1);
        replay->opened++;
        play_rest(vector, classic, &peer, segment, replay);
    } else {
        vector_assert(vector, segment == -1); /* also where the real engine died: "EOF rc=-6" */
        replay->refused++;
    }
    te_classic_destroy(classic);
    peer_stop(&peer);
    vector_assert(vector, !atomic_load(&peer.bad_request));
}

static void recorded_answers_have_the_recorded_results(void **state)
{
    struct replay replay = {.memory = g_malloc(RECORDED_BUFFER_BYTES)};

    (void)state;
    for (size_t i = 0; i < RECORDED_BUFFER_BYTES; i++)
        replay.memory[i] = (char)(7 * i + 99 + (i >> 8));
    vector_for_each("classic-cli-", play, &replay);
    print_message("%u opened, %u refused, %u transfers, %u notifications\n", replay.opened, replay.refused,
                  replay.transfers, replay.notifications);
    assert_true(replay.opened >= 15 && replay.refused >= 11 && replay.transfers >= 10 && replay.notifications >= 2);
    g_free(replay.memory);
}

static void play_probe(const struct vector *vector, void *data)
{
    struct te_classic *classic = create();
    struct scripted_peer peer;
    unsigned *played = data;
    char name[32];

    peer_start(&peer, vector);
    g_snprintf(name, sizeof(name), "127.0.0.1:%u", peer.control_port);
    vector_assert(vector, te_classic_probe(classic, name) == 0);
    te_classic_destroy(classic);
    peer_stop(&peer);
    vector_assert(vector, atomic_load(&peer.control_calls) == 1 && !atomic_load(&peer.bad_request));
    (*played)++;
}

static void a_probe_is_the_recorded_one(void **state)
{
    unsigned played = 0;

    (void)state;
    vector_for_each("classic-session-probe", play_probe, &played);
    assert_int_equal(played, 1);
}

/* ---- Peers without a recording ---- */

static struct te_classic *create_with(const char *name, const char *value)
{
    struct te_classic *classic;

    g_setenv(name, value, TRUE);
    classic = create();
    g_unsetenv(name);
    return classic;
}

static void an_unreachable_peer_is_told_apart(void **state)
{
    struct te_classic *classic = create();
    uint16_t port;
    int listener = test_listen(&port);
    char name[32];

    (void)state;
    close(listener);
    g_snprintf(name, sizeof(name), "127.0.0.1:%u", port);
    assert_int_equal(te_classic_probe(classic, name), TE_SOCKET);
    assert_int_equal(te_classic_probe(classic, "no-such-host.invalid:1"), TE_DNS);
    assert_int_equal(te_classic_probe(classic, ""), TE_INVALID_ARGUMENT);
    assert_int_equal(te_classic_probe(classic, NULL), TE_INVALID_ARGUMENT);
    assert_int_equal(te_classic_open_segment(classic, name), -1);
    assert_int_equal(te_classic_open_segment(classic, "///"), -1);
    assert_int_equal(te_classic_open_segment(classic, NULL), -1);
    te_classic_destroy(classic);
}

/* The message about a peer that nobody is at names the address that was tried last. */
static void one_family_is_tried_first(void **state)
{
    struct te_classic *engines[] = {create(), create_with("MC_USE_IPV6", "1")};
    static const char *const last[] = {"([::1]:", "(127.0.0.2:"};
    uint16_t port;
    char name[32];

    (void)state;
    close(test_listen(&port));
    g_snprintf(name, sizeof(name), BOTH_TEST ":%u", port);
    for (size_t i = 0; i < G_N_ELEMENTS(engines); i++) {
        assert_int_equal(te_classic_probe(engines[i], name), TE_SOCKET);
        assert_non_null(strstr(te_status_message(), last[i]));
        te_classic_destroy(engines[i]);
    }
}

/* Report M02: accepts and never answers. */
static void a_silent_peer_is_given_up(void **state)
{
    struct te_classic *classic = create_with("TE_HANDSHAKE_REPLY_TIMEOUT_MS", "1000");
    uint16_t port;
    int listener = test_listen(&port);
    char name[32];

    (void)state;
    g_snprintf(name, sizeof(name), "127.0.0.1:%u", port);
    assert_int_equal(te_classic_probe(classic, name), TE_SOCKET);
    assert_int_equal(te_classic_open_segment(classic, name), -1);
    close(listener);
    te_classic_destroy(classic);
}

struct opening {
    struct te_classic *classic;
    const char *name;
    _Atomic bool done;
    int32_t result;
};

static gpointer open_in_thread(gpointer data)
{
    struct opening *opening = data;

    opening->result = te_classic_open_segment(opening->classic, opening->name);
    atomic_store(&opening->done, true);
    return NULL;
}

static void a_silent_peer_holds_up_no_other_open(void **state)
{
    struct te_classic *classic = create(), *live = create();
    struct opening opening = {.classic = classic};
    char silent_name[32], live_name[32];
    uint16_t port;
    int listener = test_listen(&port), connection;
    GThread *thread;

    (void)state;
    g_snprintf(silent_name, sizeof(silent_name), "127.0.0.1:%u", port);
    opening.name = silent_name;
    thread = g_thread_new("opener", open_in_thread, &opening);
    connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(connection >= 0);
    te_classic_get_local_ip_and_port(live, live_name, sizeof(live_name));
    assert_int_equal(te_classic_open_segment(classic, live_name), 1);
    assert_false(atomic_load(&opening.done));
    close(connection);
    g_thread_join(thread);
    assert_int_equal(opening.result, -1);
    close(listener);
    te_classic_destroy(classic);
    te_classic_destroy(live);
}

/* Answers a metadata request with the descriptor that is in it, under another port. */
static void echo_request(int descriptor, int asker_port, uint16_t port)
{
    GString *request = receive_frame(descriptor);
    char asker[8];

    g_snprintf(asker, sizeof(asker), "%05d", asker_port);
    replace_port(request, asker, port);
    assert_true(test_send(descriptor, request->str, request->len));
    g_string_free(request, TRUE);
    close(descriptor);
}

static void an_engine_that_waits_for_a_dead_peer_is_destroyed_at_once(void **state)
{
    struct te_classic *classic = create_with("TE_HANDSHAKE_REPLY_TIMEOUT_MS", "600000");
    struct opening opening = {.classic = classic};
    struct te_outgoing *outgoing;
    uint16_t port;
    int listener = test_listen(&port), silent;
    char name[32];
    GThread *thread;

    (void)state;
    /* A segment whose owner accepts and says nothing from the second call on. */
    g_snprintf(name, sizeof(name), "127.0.0.1:%u", port);
    opening.name = name;
    thread = g_thread_new("opener", open_in_thread, &opening);
    silent = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    echo_request(silent, te_classic_port(classic), port);
    g_thread_join(thread);
    assert_int_equal(opening.result, 1);
    assert_int_equal(
        te_outgoing_new(classic->engine->notifier, te_segment_find(classic->engine->segments, 1), "n", "t", &outgoing),
        TE_OK);
    te_notifier_post(outgoing);
    silent = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(silent >= 0);
    te_classic_destroy(classic); /* returns, or the test ends by its time-out */
    close(silent);
    close(listener);
}

/* Opened as one name while it calls itself by another that is not reachable from here: the opened one is used. */
static void a_peer_that_calls_itself_otherwise_gets_its_notifications(void **state)
{
    static const char *const local_names[] = {"0.0.0.0", "no-such-host.invalid", "", "127.0.0.1"};

    (void)state;
    for (size_t i = 0; i < G_N_ELEMENTS(local_names); i++) {
        struct te_classic *target = te_classic_create("P2PHANDSHAKE", local_names[i], NULL, 0, 1);
        struct te_classic *classic = create();
        static char memory[4096];
        char source[4096], name[32];
        struct transfer_request request = {
            .opcode = OPCODE_WRITE, .source = source, .target_offset = (uintptr_t)memory, .length = sizeof(source)};
        notify_msg_t message = {"name", "text"}, *arrived;
        batch_id_t batch = te_classic_allocate_batch_id(classic, 1);
        int count;

        assert_non_null(target);
        memset(source, (int)i + 1, sizeof(source));
        assert_int_equal(te_classic_register_local_memory(target, memory, sizeof(memory), "*", 1), 0);
        g_snprintf(name, sizeof(name), "localhost:%d", te_classic_port(target));
        request.target_id = te_classic_open_segment(classic, name);
        assert_int_equal(request.target_id, 1);
        assert_int_equal(te_classic_submit_transfer(classic, batch, &request, 1), 0);
        assert_int_equal(te_classic_wait_batch(classic, batch, TEST_PATIENCE_SECONDS * TE_NS_PER_SECOND), 0);
        assert_memory_equal(memory, source, sizeof(memory));
        assert_int_equal(te_classic_gen_notify_in_engine(classic, 1, message), 0);
        arrived = te_classic_get_notifs_from_engine(target, &count);
        assert_int_equal(count, 1);
        assert_string_equal(arrived[0].msg, "text");
        free(arrived[0].name);
        free(arrived[0].msg);
        free(arrived);
        te_classic_destroy(classic);
        te_classic_destroy(target);
    }
}

static void connection_messages_are_accepted_and_rejected(void **state)
{
    struct te_classic *classic = create();
    struct te_classic *bare = te_classic_create("P2PHANDSHAKE", "127.0.0.1", NULL, 0, 0);
    struct te_handshake request = {.local_nic_path = "a@b", .peer_nic_path = "c@d"}, reply;
    struct te_segment_descriptor *descriptor;

    (void)state;
    assert_int_equal(
        te_classic_connect_message(classic->engine, "127.0.0.1", (uint16_t)te_classic_port(classic), &request, &reply),
        TE_OK);
    assert_string_equal(reply.reply_message, "");
    te_handshake_clear(&reply);
    /* An engine without a transport has no descriptor, and says so. */
    assert_int_not_equal(
        te_peer_fetch_descriptor(classic->engine, "127.0.0.1", (uint16_t)te_classic_port(bare), &descriptor), TE_OK);
    te_classic_destroy(classic);
    te_classic_destroy(bare);
}

static void notifications_that_are_too_long_are_refused(void **state)
{
    struct te_classic *classic = create();
    size_t size = 1024 * 1024;
    char *text = g_malloc(size + 1);
    notify_msg_t message = {"name", text}, *arrived;
    static const char frame_around[] = "x{\"name\":\"name\",\"notify_msg\":\"\"}\n";
    int count;

    (void)state;
    memset(text, 'x', size);
    text[size] = '\0';
    assert_int_equal(te_classic_gen_notify_in_engine(classic, 0, message), TE_INVALID_ARGUMENT);
    text[size - (sizeof(frame_around) - 1) + 1] = '\0';
    assert_int_equal(te_classic_gen_notify_in_engine(classic, 0, message), TE_INVALID_ARGUMENT);
    text[size - (sizeof(frame_around) - 1)] = '\0';
    assert_int_equal(te_classic_gen_notify_in_engine(classic, 0, message), TE_OK);
    /* Every character takes two when it is escaped. */
    memset(text, '"', size / 2);
    text[size / 2] = '\0';
    assert_int_equal(te_classic_gen_notify_in_engine(classic, 0, message), TE_INVALID_ARGUMENT);
    message.name = NULL;
    assert_int_equal(te_classic_gen_notify_in_engine(classic, 0, message), TE_INVALID_ARGUMENT);
    message.name = "";
    text[0] = '\0';
    assert_int_equal(te_classic_gen_notify_in_engine(classic, 7, message), TE_METADATA);
    assert_int_equal(te_classic_gen_notify_in_engine(classic, UINT64_MAX, message), TE_METADATA);
    arrived = te_classic_get_notifs_from_engine(classic, &count);
    assert_int_equal(count, 1);
    assert_int_equal(strlen(arrived[0].msg), size - (sizeof(frame_around) - 1));
    free(arrived[0].name);
    free(arrived[0].msg);
    free(arrived);
    g_free(text);
    te_classic_destroy(classic);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_answers_have_the_recorded_results),
        cmocka_unit_test(a_probe_is_the_recorded_one),
        cmocka_unit_test(an_unreachable_peer_is_told_apart),
        cmocka_unit_test(one_family_is_tried_first),
        cmocka_unit_test(a_silent_peer_is_given_up),
        cmocka_unit_test(a_silent_peer_holds_up_no_other_open),
        cmocka_unit_test(an_engine_that_waits_for_a_dead_peer_is_destroyed_at_once),
        cmocka_unit_test(a_peer_that_calls_itself_otherwise_gets_its_notifications),
        cmocka_unit_test(connection_messages_are_accepted_and_rejected),
        cmocka_unit_test(notifications_that_are_too_long_are_refused),
    };

    return cmocka_run_group_tests(tests, test_use_log, NULL);
}
