/* Just enough JSON to read the few members of a request body that the reference server needs.
 *
 * A value is a span of the text, never copied. The text must be balanced JSON; on anything else the
 * functions return an absent span instead of reading past the end. */
#ifndef JSON_SCAN_H
#define JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* [at, end) of one JSON value; at is NULL when the value is absent. */
struct span {
    const char *at, *end;
};

static const struct span ABSENT = {NULL, NULL};

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && is_space(*p))
        p++;
    return p;
}

/* p is at the opening quote; returns just behind the closing one, NULL when there is none. */
static const char *skip_string(const char *p, const char *end)
{
    for (p++; p < end; p++) {
        if (*p == '\\')
            p++;
        else if (*p == '"')
            return p + 1;
    }
    return NULL;
}

/* Returns just behind the value that starts at p, NULL when the text ends inside it. */
static const char *skip_value(const char *p, const char *end)
{
    int depth = 0;

    while (p < end) {
        if (*p == '"') {
            p = skip_string(p, end);
            if (p == NULL)
                return NULL;
        } else if (*p == '{' || *p == '[') {
            depth++;
            p++;
        } else if (*p == '}' || *p == ']') {
            depth--;
            p++;
        } else if (depth == 0) {
            while (p < end && *p != ',' && *p != '}' && *p != ']' && !is_space(*p))
                p++;
        } else {
            p++;
            continue;
        }
        if (depth == 0)
            return p;
    }
    return NULL;
}

/* Steps through an array: the first element after p (just behind '[' or the last element). */
static struct span next_element(const char *p, const char *end)
{
    p = skip_space(p, end);
    if (p < end && *p == ',')
        p = skip_space(p + 1, end);
    if (p >= end || *p == ']')
        return ABSENT;
    const char *stop = skip_value(p, end);
    return stop == NULL ? ABSENT : (struct span){p, stop};
}

/* The member of an object by its name; absent when `object` is no object or has no such member. */
static struct span member(struct span object, const char *name)
{
    size_t length = strlen(name);

    if (object.at == NULL || object.at >= object.end || *object.at != '{')
        return ABSENT;
    const char *p = skip_space(object.at + 1, object.end);
    while (p < object.end && *p == '"') {
        const char *key = p + 1;
        if ((p = skip_string(p, object.end)) == NULL)
            break;
        bool found = (size_t)(p - 1 - key) == length && memcmp(key, name, length) == 0;
        p = skip_space(p, object.end);
        if (p >= object.end || *p != ':')
            break;
        const char *value = skip_space(p + 1, object.end);
        if ((p = skip_value(value, object.end)) == NULL)
            break;
        if (found)
            return (struct span){value, p};
        p = skip_space(p, object.end);
        if (p < object.end && *p == ',')
            p = skip_space(p + 1, object.end);
    }
    return ABSENT;
}

/* A whole number; `otherwise` when the value is absent or no number. A fraction is cut off. */
static int64_t integer(struct span value, int64_t otherwise)
{
    const char *p = value.at;
    bool negative = p != NULL && *p == '-';
    int64_t sum = 0;

    if (negative)
        p++;
    if (p == NULL || p >= value.end || *p < '0' || *p > '9')
        return otherwise;
    for (; p < value.end && *p >= '0' && *p <= '9' && sum < INT64_MAX / 20; p++)
        sum = sum * 10 + (*p - '0');
    return negative ? -sum : sum;
}

static bool boolean(struct span value, bool otherwise)
{
    return value.at == NULL ? otherwise : *value.at == 't';
}

static bool is_string(struct span value, const char *text)
{
    size_t length = strlen(text);
    return value.at != NULL && *value.at == '"' && (size_t)(value.end - value.at) == length + 2 &&
           memcmp(value.at + 1, text, length) == 0;
}

#endif
