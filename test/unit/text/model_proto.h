/* model_proto.h -- messages of protobuf, and model files of SentencePiece, for tests. */
#ifndef TEST_UNIT_TEXT_MODEL_PROTO_H
#define TEST_UNIT_TEXT_MODEL_PROTO_H

#include <stdint.h>
#include <string.h>

struct message {
    uint8_t data[65536];
    size_t n;
};

static inline void put_varint(struct message *m, uint64_t v)
{
    for (; v > 127; v >>= 7)
        m->data[m->n++] = (uint8_t)(v | 128);
    m->data[m->n++] = (uint8_t)v;
}

static inline void put_number(struct message *m, uint32_t field, uint64_t v)
{
    put_varint(m, field << 3);
    put_varint(m, v);
}

static inline void put_bytes(struct message *m, uint32_t field, const void *s, size_t n)
{
    put_varint(m, field << 3 | 2);
    put_varint(m, n);
    memcpy(m->data + m->n, s, n);
    m->n += n;
}

/* Types: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte. */
static inline void put_piece(struct message *m, const char *text, float score, int type)
{
    struct message p = {.n = 0};

    put_bytes(&p, 1, text, strlen(text));
    put_varint(&p, 2 << 3 | 5);
    memcpy(p.data + p.n, &score, sizeof(score));
    p.n += sizeof(score);
    if (type != 1)
        put_number(&p, 3, (uint64_t)type);
    put_bytes(m, 1, p.data, p.n);
}

/* trainer_spec (2) or normalizer_spec (3): its fields and their numbers, 0 at the end. */
static inline void put_spec(struct message *m, uint32_t spec, const uint32_t *fields)
{
    struct message s = {.n = 0};

    for (; *fields; fields += 2)
        put_number(&s, fields[0], fields[1]);
    put_bytes(m, spec, s.data, s.n);
}

#endif
