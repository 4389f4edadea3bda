/* A growing buffer of bytes. Running out of memory ends the program: a measurement has no use for less. */
#ifndef BUFFER_H
#define BUFFER_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct buffer {
    char *data;
    size_t length, room;
};

static void *grown(void *memory, size_t size)
{
    memory = realloc(memory, size);
    if (memory == NULL) {
        fprintf(stderr, "reference_server: out of memory\n");
        exit(1);
    }
    return memory;
}

/* Makes room for `more` bytes behind what is there. */
static void reserve(struct buffer *b, size_t more)
{
    if (b->length + more <= b->room)
        return;
    b->room = (b->length + more) * 2;
    b->data = grown(b->data, b->room);
}

static void put(struct buffer *b, const char *bytes, size_t length)
{
    reserve(b, length);
    memcpy(b->data + b->length, bytes, length);
    b->length += length;
}

static void put_text(struct buffer *b, const char *text) { put(b, text, strlen(text)); }

/* At most 511 bytes of text; longer is cut. */
__attribute__((format(printf, 2, 3))) static void put_format(struct buffer *b, const char *format, ...)
{
    va_list arguments;
    char text[512];
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put(b, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1);
}

#endif
