/* The reference server: a streaming chat server whose times are known exactly.
 *
 * It computes nothing. It speaks as much of vLLM's HTTP as a load generator needs and sends every token at
 * an absolute deadline, so that what a client reports can be held against what really happened. One thread,
 * one epoll loop; times are nanoseconds of CLOCK_MONOTONIC, the clock of Python's time.perf_counter().
 *
 *   POST /v1/chat/completions, /v1/completions    streamed on the plan below, or answered at once without "stream"
 *   POST /tokenize                                one word is one token
 *   GET  /v1/models, /health
 *   GET  /stats                                   counters as JSON
 *   GET  /truth?after=N&limit=M                   one CSV row a finished request, oldest first, see write_truth()
 *
 * The plan of one request is its "max_tokens" and the body's extra member "reference"; what is not given there
 * has the command line's value:
 *
 *   "reference": {"ttft_us": 50000, "itl_us": 10000, "in_step": false, "jitter_us": 0, "role": "first"}
 *
 *   ttft_us    first token this long after the kernel received the request
 *   itl_us     between tokens; 0 sends as fast as the socket takes it, many tokens a write
 *   in_step    every deadline is a multiple of itl_us on the clock, so that all streams send together
 *   jitter_us  the first token comes up to this much later, evenly distributed
 *   role       the chunk without content that opens a chat answer: "first" in the same write as the first
 *              token, "early" with the headers, "none"
 *
 * The text of every token is its own send time: a space and 16 digits of nanoseconds. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "buffer.h"
#include "json_scan.h"
#include "word_tokens.h"

#define SECOND 1000000000ull
#define SPIN_NS 20000        /* poll instead of sleeping for the last bit before a deadline */
#define BURST 256            /* sends between two looks at the sockets */
#define POUR_BYTES 16384     /* one write of an unpaced stream */
#define READ_BYTES 65536
#define MAX_REQUEST (64 << 20)
#define PAGE_ROWS 5000
#define STAMP_DIGITS 16

enum role { ROLE_NONE, ROLE_FIRST, ROLE_EARLY };

struct plan {
    uint64_t ttft_ns, itl_ns, jitter_ns;
    bool in_step;
    enum role role;
    int64_t tokens;
};

struct stream {
    bool active, chat, usage;
    struct plan plan;
    uint64_t number;                        /* of the request, from 1; its id is made of it */
    uint64_t received, due, first, last;    /* ns; first and last are 0 until sent */
    uint64_t late;                          /* largest time from a deadline to its send */
    int64_t sent, prompt_tokens;
    int heap_at;                            /* place in the heap of deadlines, -1 when not waiting */
    char head[320];                         /* every chunk up to its choices */
    int head_length;
};

struct connection {
    int fd;
    bool waits_for_room, close_after;
    uint64_t received;                      /* when the kernel had the bytes that were read last */
    struct buffer in, out;
    size_t out_at;
    struct stream stream;
};

/* What is remembered of a request after its end. */
struct record {
    uint64_t number, received, first, last, late;
    uint32_t asked, tokens;
    bool chat;
};

static struct {
    uint64_t requests, finished, aborted, tokens, other, first_request;
} counters;
static struct plan defaults = {50000000, 10000000, 0, false, ROLE_FIRST, 128};
static const char *model = "reference";
static int epoll_fd;
static uint64_t random_state = 0x9e3779b97f4a7c15ull;

static int listener_mark, control_mark;      /* their addresses stand for the two listeners in epoll */

static struct record *records;              /* a ring; row n (from 1) is at n % record_room */
static uint64_t record_room = 131072, record_count;

static struct connection **heap;            /* the connection with the nearest deadline first */
static int heap_length, heap_room;

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

/* ---- the heap of deadlines ----------------------------------------------------------------------------- */

static void heap_set(int at, struct connection *c)
{
    heap[at] = c;
    c->stream.heap_at = at;
}

static void heap_rise(int at)
{
    struct connection *c = heap[at];
    for (int parent; at > 0 && heap[parent = (at - 1) / 2]->stream.due > c->stream.due; at = parent)
        heap_set(at, heap[parent]);
    heap_set(at, c);
}

static void heap_sink(int at)
{
    struct connection *c = heap[at];
    for (int child; (child = 2 * at + 1) < heap_length; at = child) {
        if (child + 1 < heap_length && heap[child + 1]->stream.due < heap[child]->stream.due)
            child++;
        if (heap[child]->stream.due >= c->stream.due)
            break;
        heap_set(at, heap[child]);
    }
    heap_set(at, c);
}

static void heap_add(struct connection *c)
{
    if (heap_length == heap_room) {
        heap_room = heap_room ? heap_room * 2 : 1024;
        heap = grown(heap, (size_t)heap_room * sizeof *heap);
    }
    heap_set(heap_length++, c);
    heap_rise(c->stream.heap_at);
}

static void heap_remove(struct connection *c)
{
    int at = c->stream.heap_at;
    if (at < 0)
        return;
    c->stream.heap_at = -1;
    if (at == --heap_length)
        return;
    heap_set(at, heap[heap_length]);
    heap_rise(at);
    heap_sink(heap[at]->stream.heap_at);
}

/* ---- connections --------------------------------------------------------------------------------------- */

static void record_end(struct stream *s)
{
    struct record *r = &records[++record_count % record_room];
    *r = (struct record){s->number, s->received, s->first, s->last, s->late,
                         (uint32_t)s->plan.tokens, (uint32_t)s->sent, s->chat};
    if (s->sent < s->plan.tokens)
        counters.aborted++;
    else
        counters.finished++;
    s->active = false;
}

static void close_connection(struct connection *c)
{
    if (c->stream.active)
        record_end(&c->stream);
    heap_remove(c);
    close(c->fd);
    free(c->in.data);
    free(c->out.data);
    free(c);
}

static void wait_for_room(struct connection *c, bool wait)
{
    if (c->waits_for_room == wait)
        return;
    struct epoll_event event = {.events = EPOLLIN | (wait ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
    c->waits_for_room = wait;
}

/* Sends what is waiting. False when the connection is broken; what the socket does not take stays. */
static bool flush(struct connection *c)
{
    while (c->out_at < c->out.length) {
        ssize_t sent = send(c->fd, c->out.data + c->out_at, c->out.length - c->out_at, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            wait_for_room(c, true);
            return true;
        }
        if (sent < 0)
            return false;
        c->out_at += (size_t)sent;
    }
    c->out_at = c->out.length = 0;
    return true;
}

/* ---- what a stream says -------------------------------------------------------------------------------- */

static void put_chunk(struct buffer *out, const struct stream *s, const char *rest, int rest_length)
{
    put_format(out, "%x\r\n", s->head_length + rest_length);
    put(out, s->head, (size_t)s->head_length);
    put(out, rest, (size_t)rest_length);
    put(out, "\r\n", 2);
}

static void put_role(struct buffer *out, const struct stream *s)
{
    static const char ROLE[] = "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                               "\"logprobs\":null,\"finish_reason\":null}]}\n\n";
    put_chunk(out, s, ROLE, sizeof ROLE - 1);
}

static void put_token(struct buffer *out, struct stream *s, uint64_t now)
{
    char rest[256], digits[STAMP_DIGITS + 1];
    bool last = ++s->sent == s->plan.tokens;

    if (s->sent == 1) {
        s->first = now;
        if (s->chat && s->plan.role == ROLE_FIRST)
            put_role(out, s);
    }
    s->last = now;
    counters.tokens++;
    for (int i = STAMP_DIGITS; i-- > 0; now /= 10)
        digits[i] = (char)('0' + now % 10);
    digits[STAMP_DIGITS] = 0;
    int length = snprintf(rest, sizeof rest, "\"choices\":[{\"index\":0,%s %s\"%s,\"logprobs\":null,\"finish_reason\":%s}]}\n\n",
                          s->chat ? "\"delta\":{\"content\":\"" : "\"text\":\"", digits, s->chat ? "}" : "",
                          last ? "\"length\"" : "null");
    put_chunk(out, s, rest, length);
}

static int write_usage(char *text, size_t room, const struct stream *s)
{
    return snprintf(text, room, "\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld,\"completion_tokens\":%lld}",
                    (long long)s->prompt_tokens, (long long)(s->prompt_tokens + s->sent), (long long)s->sent);
}

static void put_end(struct buffer *out, const struct stream *s)
{
    char rest[256] = "\"choices\":[],";
    if (s->usage) {
        int length = (int)strlen(rest);
        length += write_usage(rest + length, sizeof rest - 8 - (size_t)length, s);
        strcpy(rest + length, "}\n\n");
        put_chunk(out, s, rest, length + 3);
    }
    put_text(out, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
}

/* One token and, after the last, the end of the stream. */
static void advance(struct connection *c, uint64_t now)
{
    struct stream *s = &c->stream;
    put_token(&c->out, s, now);
    if (s->sent == s->plan.tokens) {
        put_end(&c->out, s);
        record_end(s);
    }
}

/* Writes of an unpaced stream until it ends or the socket is full. */
static bool pour(struct connection *c)
{
    uint64_t now = now_ns();
    if (c->stream.first == 0 && now > c->stream.due)
        c->stream.late = now - c->stream.due;
    while (c->stream.active && c->out.length - c->out_at < POUR_BYTES)
        advance(c, now);
    if (!flush(c))
        return false;
    wait_for_room(c, c->stream.active || c->out.length > 0);
    return true;
}

/* ---- requests ------------------------------------------------------------------------------------------ */

static uint64_t random_below(uint64_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return limit ? random_state % limit : 0;
}

static struct plan read_plan(struct span body)
{
    struct span asked = member(body, "reference"), role = member(asked, "role");
    struct span tokens = member(body, "max_tokens");
    struct plan p = defaults;

    if (tokens.at == NULL)
        tokens = member(body, "max_completion_tokens");
    p.tokens = integer(tokens, defaults.tokens);
    if (p.tokens < 1)
        p.tokens = 1;
    p.ttft_ns = (uint64_t)integer(member(asked, "ttft_us"), (int64_t)(defaults.ttft_ns / 1000)) * 1000;
    p.itl_ns = (uint64_t)integer(member(asked, "itl_us"), (int64_t)(defaults.itl_ns / 1000)) * 1000;
    p.jitter_ns = (uint64_t)integer(member(asked, "jitter_us"), (int64_t)(defaults.jitter_ns / 1000)) * 1000;
    p.in_step = boolean(member(asked, "in_step"), defaults.in_step);
    if (role.at != NULL)
        p.role = is_string(role, "none") ? ROLE_NONE : is_string(role, "early") ? ROLE_EARLY : ROLE_FIRST;
    return p;
}

static void answer(struct connection *c, int status, const char *type, const char *body, size_t length)
{
    put_format(&c->out, "HTTP/1.1 %d %s\r\nserver: reference\r\ncontent-type: %s\r\ncontent-length: %zu\r\n\r\n", status,
               status == 200 ? "OK" : "Error", type, length);
    put(&c->out, body, length);
}

static void answer_json(struct connection *c, int status, const char *body)
{
    answer(c, status, "application/json", body, strlen(body));
}

static void answer_whole(struct connection *c)
{
    struct stream *s = &c->stream;
    char usage[160], body[768];

    s->sent = s->plan.tokens;
    s->first = s->last = now_ns();
    write_usage(usage, sizeof usage, s);
    snprintf(body, sizeof body, "{\"id\":\"%s-%032llx\",\"object\":\"%s\",\"created\":%llu,\"model\":\"%s\",\"choices\":[{\"index\":0,%s,"
             "\"logprobs\":null,\"finish_reason\":\"length\"}],%s}",
             s->chat ? "chatcmpl" : "cmpl", (unsigned long long)s->number, s->chat ? "chat.completion" : "text_completion",
             (unsigned long long)(clock_ns(CLOCK_REALTIME) / SECOND), model,
             s->chat ? "\"message\":{\"role\":\"assistant\",\"content\":\" whole\"}" : "\"text\":\" whole\"", usage);
    answer_json(c, 200, body);
    record_end(s);
}

static void schedule_first_token(struct stream *s)
{
    s->due = s->received + s->plan.ttft_ns + random_below(s->plan.jitter_ns);
    if (s->plan.in_step && s->plan.itl_ns > 0)
        s->due = (s->due + s->plan.itl_ns - 1) / s->plan.itl_ns * s->plan.itl_ns;
}

static void begin_stream(struct connection *c)
{
    struct stream *s = &c->stream;

    s->head_length = snprintf(s->head, sizeof s->head, "data: {\"id\":\"%s-%032llx\",\"object\":\"%s\",\"created\":%llu,\"model\":\"%s\",",
                              s->chat ? "chatcmpl" : "cmpl", (unsigned long long)s->number,
                              s->chat ? "chat.completion.chunk" : "text_completion",
                              (unsigned long long)(clock_ns(CLOCK_REALTIME) / SECOND), model);
    put_text(&c->out, "HTTP/1.1 200 OK\r\nserver: reference\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                      "transfer-encoding: chunked\r\n\r\n");
    if (s->chat && s->plan.role == ROLE_EARLY)
        put_role(&c->out, s);
    if (s->plan.itl_ns == 0 && s->due <= now_ns())
        pour(c);
    else
        heap_add(c);
}

static void complete(struct connection *c, struct span body, bool chat)
{
    struct stream *s = &c->stream;

    *s = (struct stream){.active = true, .chat = chat, .plan = read_plan(body), .number = ++counters.requests,
                         .received = c->received, .heap_at = -1};
    if (counters.first_request == 0)
        counters.first_request = s->received;
    s->usage = boolean(member(member(body, "stream_options"), "include_usage"), false);
    s->prompt_tokens = count_tokens(member(body, chat ? "messages" : "prompt"), NULL);
    schedule_first_token(s);
    if (boolean(member(body, "stream"), false))
        begin_stream(c);
    else
        answer_whole(c);
}

static void tokenize(struct connection *c, struct span body)
{
    struct buffer ids = {0}, text = {0};
    struct span prompt = member(body, "prompt");
    int64_t count = count_tokens(prompt.at != NULL ? prompt : member(body, "messages"), &ids);

    put_format(&text, "{\"count\":%lld,\"max_model_len\":1048576,\"tokens\":[", (long long)count);
    if (ids.length)
        put(&text, ids.data, ids.length);
    put_text(&text, "],\"token_strs\":null}");
    answer(c, 200, "application/json", text.data, text.length);
    free(ids.data);
    free(text.data);
}

static void stats(struct connection *c)
{
    char body[512];
    snprintf(body, sizeof body,
             "{\"now_ns\":%llu,\"requests\":%llu,\"finished\":%llu,\"aborted\":%llu,\"active\":%llu,\"tokens\":%llu,"
             "\"other\":%llu,\"first_request_ns\":%llu,\"records\":%llu}",
             (unsigned long long)now_ns(), (unsigned long long)counters.requests, (unsigned long long)counters.finished,
             (unsigned long long)counters.aborted,
             (unsigned long long)(counters.requests - counters.finished - counters.aborted),
             (unsigned long long)counters.tokens, (unsigned long long)counters.other,
             (unsigned long long)counters.first_request, (unsigned long long)record_count);
    answer_json(c, 200, body);
}

/* Rows after row number `after`, at most `limit`: their number n grows by one a row, so a gap at the start of a
 * page says how many rows the ring has already overwritten. An unfinished answer (the client went away) has
 * tokens < asked; a time that never came is blank. late_ns is how far the server itself missed a deadline. */
static void write_truth(struct connection *c, uint64_t after, uint64_t limit)
{
    struct buffer text = {0};
    uint64_t oldest = record_count > record_room ? record_count - record_room : 0;

    put_text(&text, "n,request_id,received_ns,first_token_ns,last_token_ns,late_ns,asked,tokens\n");
    if (after < oldest)
        after = oldest;
    for (uint64_t n = after + 1; n <= record_count && n <= after + limit; n++) {
        const struct record *r = &records[n % record_room];
        put_format(&text, "%llu,%s-%032llx,%llu,", (unsigned long long)n, r->chat ? "chatcmpl" : "cmpl",
                   (unsigned long long)r->number, (unsigned long long)r->received);
        if (r->first)
            put_format(&text, "%llu,%llu,", (unsigned long long)r->first, (unsigned long long)r->last);
        else
            put_text(&text, ",,");
        put_format(&text, "%llu,%u,%u\n", (unsigned long long)r->late, r->asked, r->tokens);
    }
    answer(c, 200, "text/csv", text.data, text.length);
    free(text.data);
}

static uint64_t query_number(const char *path, const char *name, uint64_t otherwise)
{
    const char *at = strstr(path, name);
    return at == NULL ? otherwise : strtoull(at + strlen(name), NULL, 10);
}

static bool starts_with(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

static void answer_other(struct connection *c, const char *line)
{
    char body[384];

    counters.other++;
    if (starts_with(line, "GET /health"))
        answer(c, 200, "text/plain", "", 0);
    else if (starts_with(line, "GET /stats"))
        stats(c);
    else if (starts_with(line, "GET /truth")) {
        uint64_t limit = query_number(line, "limit=", PAGE_ROWS);
        write_truth(c, query_number(line, "after=", 0), limit < PAGE_ROWS ? limit : PAGE_ROWS);
    } else if (starts_with(line, "GET /v1/models")) {
        snprintf(body, sizeof body, "{\"object\":\"list\",\"data\":[{\"id\":\"%s\",\"object\":\"model\",\"created\":0,"
                 "\"owned_by\":\"reference\",\"root\":\"%s\",\"max_model_len\":1048576}]}", model, model);
        answer_json(c, 200, body);
    } else
        answer_json(c, 404, "{\"error\":{\"message\":\"no such path\",\"type\":\"NotFoundError\",\"code\":404}}");
}

static void dispatch(struct connection *c, const char *line, struct span body)
{
    if (starts_with(line, "POST /v1/chat/completions"))
        complete(c, body, true);
    else if (starts_with(line, "POST /v1/completions"))
        complete(c, body, false);
    else if (starts_with(line, "POST /tokenize"))
        tokenize(c, body);
    else
        answer_other(c, line);
}

/* The value of a header as text, NULL when it is not there. The head ends with a zero byte. */
static const char *header(const char *head, const char *name)
{
    const char *at = strcasestr(head, name);
    return at == NULL ? NULL : at + strlen(name);
}

/* Serves the first request in the input. False when none is complete yet; *broken on one that cannot be served. */
static bool serve_one(struct connection *c, bool *broken)
{
    char *end = memmem(c->in.data, c->in.length, "\r\n\r\n", 4);
    if (end == NULL)
        return false;
    size_t head_length = (size_t)(end - c->in.data) + 4;
    end[2] = 0; /* the head is text now, its last line end still there */
    const char *length_text = header(c->in.data, "\r\ncontent-length:");
    size_t body_length = length_text == NULL ? 0 : strtoul(length_text, NULL, 10);
    *broken = body_length > MAX_REQUEST;
    if (*broken || c->in.length < head_length + body_length) {
        end[2] = '\r';
        return false;
    }
    const char *connection = header(c->in.data, "\r\nconnection: ");
    const char *body = c->in.data + head_length;
    c->close_after = connection != NULL && strncasecmp(connection, "close", 5) == 0;
    dispatch(c, c->in.data, (struct span){skip_space(body, body + body_length), body + body_length});
    c->in.length -= head_length + body_length;
    memmove(c->in.data, c->in.data + head_length + body_length, c->in.length);
    return true;
}

/* Serves whole requests as long as no stream is running. False when the connection is to be closed. */
static bool serve(struct connection *c)
{
    bool broken = false;
    while (!c->stream.active && c->in.length > 0 && serve_one(c, &broken))
        if (!flush(c))
            return false;
    return !broken && !(c->close_after && !c->stream.active && c->out.length == 0);
}

/* Reads what has come and when the kernel had it: the time a request waits for this loop is not the client's. */
static bool receive(struct connection *c)
{
    char control[64];
    reserve(&c->in, READ_BYTES);
    struct iovec space = {c->in.data + c->in.length, c->in.room - c->in.length};
    struct msghdr message = {.msg_iov = &space, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t length = recvmsg(c->fd, &message, 0);

    if (length < 0)
        return errno == EAGAIN;
    if (length == 0)
        return false;
    c->in.length += (size_t)length;
    c->received = now_ns();
    for (struct cmsghdr *m = CMSG_FIRSTHDR(&message); m != NULL; m = CMSG_NXTHDR(&message, m)) {
        struct timespec stamp;
        if (m->cmsg_level != SOL_SOCKET || m->cmsg_type != SCM_TIMESTAMPNS)
            continue;
        memcpy(&stamp, CMSG_DATA(m), sizeof stamp);
        uint64_t age = clock_ns(CLOCK_REALTIME) - ((uint64_t)stamp.tv_sec * SECOND + (uint64_t)stamp.tv_nsec);
        if (age < SECOND) /* a clock that was set meanwhile says nothing */
            c->received -= age;
    }
    return true;
}

/* ---- the loop ------------------------------------------------------------------------------------------ */

static void accept_all(int listener)
{
    int on = 1, fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        struct connection *c = calloc(1, sizeof *c);
        if (c == NULL) {
            close(fd);
            return;
        }
        c->fd = fd;
        c->stream.heap_at = -1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
    }
}

static void handle(struct connection *c, uint32_t events)
{
    bool alive = true;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        alive = receive(c);
    if (alive && (events & EPOLLOUT)) {
        alive = flush(c);
        if (alive && c->out.length == 0) {
            wait_for_room(c, false);
            if (c->stream.active && c->stream.plan.itl_ns == 0 && c->stream.heap_at < 0)
                alive = pour(c);
        }
    }
    if (!alive || !serve(c))
        close_connection(c);
}

static void send_due(void)
{
    uint64_t now = now_ns();
    for (int left = BURST; left > 0 && heap_length > 0 && heap[0]->stream.due <= now; left--) {
        struct connection *c = heap[0];
        struct stream *s = &c->stream;
        bool alive;
        now = now_ns();
        if (s->plan.itl_ns == 0) {
            heap_remove(c);
            alive = pour(c);
        } else {
            if (now - s->due > s->late)
                s->late = now - s->due;
            advance(c, now);
            s->due += s->plan.itl_ns; /* from the deadline, not from now: lateness never adds up */
            if (s->active)
                heap_sink(0);
            else
                heap_remove(c);
            alive = c->waits_for_room || flush(c);
        }
        if (!alive || (!s->active && !serve(c)))
            close_connection(c);
    }
}

static int wait_for_events(struct epoll_event *events, int room)
{
    struct timespec sleep, *timeout = NULL;
    if (heap_length > 0) {
        uint64_t now = now_ns(), due = heap[0]->stream.due;
        uint64_t rest = due > now + SPIN_NS ? due - now - SPIN_NS : 0;
        sleep = (struct timespec){(time_t)(rest / SECOND), (long)(rest % SECOND)};
        timeout = &sleep;
    }
    return epoll_pwait2(epoll_fd, events, room, timeout, NULL);
}

static void run(int listener, int control)
{
    struct epoll_event events[512];
    for (;;) {
        int count = wait_for_events(events, 512);
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == &listener_mark)
                accept_all(listener);
            else if (events[i].data.ptr == &control_mark)
                accept_all(control);
            else
                handle(events[i].data.ptr, events[i].events);
        }
        send_due();
    }
}

static int listening(int family, const struct sockaddr *address, socklen_t length, void *mark)
{
    int on = 1, fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = mark};

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, address, length) < 0 || listen(fd, 4096) < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        fprintf(stderr, "reference_server: cannot listen: %s\n", strerror(errno));
        exit(1);
    }
    return fd;
}

/* Listens on TCP and tells where in one line. */
static int listen_tcp(const char *host, int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t length = sizeof address;

    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        fprintf(stderr, "reference_server: --host wants an IPv4 address, not %s\n", host);
        exit(2);
    }
    int fd = listening(AF_INET, (struct sockaddr *)&address, length, &listener_mark);
    getsockname(fd, (struct sockaddr *)&address, &length);
    printf("listening on %s:%d\n", host, ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

/* A second way in, for /stats and /truth from outside the network namespace of the load. */
static int listen_control(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        fprintf(stderr, "reference_server: --control: the path is too long\n");
        exit(2);
    }
    strcpy(address.sun_path, path);
    return listening(AF_UNIX, (struct sockaddr *)&address, sizeof address, &control_mark);
}

static const struct option OPTIONS[] = {
    {"host", required_argument, NULL, 'h'},    {"port", required_argument, NULL, 'p'},
    {"control", required_argument, NULL, 'c'}, {"model", required_argument, NULL, 'm'},
    {"ttft-us", required_argument, NULL, 't'}, {"itl-us", required_argument, NULL, 'i'},
    {"jitter-us", required_argument, NULL, 'j'}, {"tokens", required_argument, NULL, 'n'},
    {"records", required_argument, NULL, 'r'}, {"in-step", no_argument, NULL, 's'},
    {"die-with-parent", no_argument, NULL, 'd'}, {NULL, 0, NULL, 0},
};

/* A few resources that have low defaults: open files, and the 50 us by which Linux lets a sleep run over. */
static void raise_limits(void)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    prctl(PR_SET_TIMERSLACK, 1);
}

int main(int argc, char **argv)
{
    const char *host = "127.0.0.1", *control_path = NULL;
    int port = 0;

    for (int option; (option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        uint64_t number = optarg == NULL ? 0 : strtoull(optarg, NULL, 10);
        switch (option) {
        case 'h': host = optarg; break;
        case 'p': port = (int)number; break;
        case 'c': control_path = optarg; break;
        case 'm': model = optarg; break;
        case 't': defaults.ttft_ns = number * 1000; break;
        case 'i': defaults.itl_ns = number * 1000; break;
        case 'j': defaults.jitter_ns = number * 1000; break;
        case 'n': defaults.tokens = (int64_t)number; break;
        case 'r': record_room = number ? number : 1; break;
        case 's': defaults.in_step = true; break;
        case 'd': prctl(PR_SET_PDEATHSIG, SIGKILL); break;
        default: return 2;
        }
    }
    raise_limits();
    records = grown(NULL, record_room * sizeof *records);
    epoll_fd = epoll_create1(0);
    int control = control_path == NULL ? -1 : listen_control(control_path);
    run(listen_tcp(host, port), control);
    return 0;
}
