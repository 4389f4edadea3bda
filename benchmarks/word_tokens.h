/* The reference server's tokenizer: one word is one token, and its id is a hash of the word. */
#ifndef WORD_TOKENS_H
#define WORD_TOKENS_H

#include "buffer.h"
#include "json_scan.h"

#define VOCABULARY 100000

static void put_id(struct buffer *ids, uint32_t id)
{
    if (ids != NULL)
        put_format(ids, ids->length ? ",%u" : "%u", id % VOCABULARY);
}

/* Words of a JSON string, apart by spaces, tabs and line ends (the latter two are escapes in JSON). */
static int64_t words_of_string(struct span text, struct buffer *ids)
{
    int64_t words = 0;
    uint32_t hash = 0;
    bool inside = false;

    for (const char *p = text.at + 1; p < text.end; p++) {
        bool gap = *p == ' ' || p == text.end - 1;
        if (*p == '\\') {
            p++;
            gap = *p == 'n' || *p == 't' || *p == 'r';
        }
        if (!gap)
            hash = ((inside ? hash : 2166136261u) ^ (unsigned char)*p) * 16777619u; /* FNV-1a */
        else if (inside)
            put_id(ids, hash);
        words += !gap && !inside;
        inside = !gap;
    }
    return words;
}

/* Tokens of a prompt, their ids appended to `ids` unless it is NULL. A string counts its words, a number is one token,
 * an array is the sum of its elements, a message counts its `content`, a content part its `text`; anything else counts
 * nothing. */
static int64_t count_tokens(struct span value, struct buffer *ids)
{
    int64_t sum = 0;

    if (value.at == NULL || value.at >= value.end)
        return 0;
    switch (*value.at) {
    case '"':
        return words_of_string(value, ids);
    case '{':
        value = member(value, member(value, "content").at == NULL ? "text" : "content");
        return value.at != NULL && *value.at != '{' ? count_tokens(value, ids) : 0;
    case '[':
        for (struct span e = next_element(value.at + 1, value.end); e.at != NULL; e = next_element(e.end, value.end))
            sum += count_tokens(e, ids);
        return sum;
    case 'n': /* null */
    case 't':
    case 'f':
        return 0;
    default:
        put_id(ids, (uint32_t)integer(value, 0));
        return 1;
    }
}

#endif
