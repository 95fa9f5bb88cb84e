#include "worker/tools/gguf_names.h"

#include <stdlib.h>
#include <string.h>

static const struct zt_gguf_name gpt2_names[] = {
    {"wte.weight", "token_embd.weight", ZT_GGUF_AS_IS},
    {"wpe.weight", "position_embd.weight", ZT_GGUF_AS_IS},
    {"ln_f.weight", "output_norm.weight", ZT_GGUF_AS_IS},
    {"ln_f.bias", "output_norm.bias", ZT_GGUF_AS_IS},
    {"h.%d.ln_1.weight", "blk.%d.attn_norm.weight", ZT_GGUF_AS_IS},
    {"h.%d.ln_1.bias", "blk.%d.attn_norm.bias", ZT_GGUF_AS_IS},
    {"h.%d.attn.c_attn.weight", "blk.%d.attn_qkv.weight", ZT_GGUF_TRANSPOSED},
    {"h.%d.attn.c_attn.bias", "blk.%d.attn_qkv.bias", ZT_GGUF_AS_IS},
    {"h.%d.attn.c_proj.weight", "blk.%d.attn_output.weight", ZT_GGUF_TRANSPOSED},
    {"h.%d.attn.c_proj.bias", "blk.%d.attn_output.bias", ZT_GGUF_AS_IS},
    {"h.%d.ln_2.weight", "blk.%d.ffn_norm.weight", ZT_GGUF_AS_IS},
    {"h.%d.ln_2.bias", "blk.%d.ffn_norm.bias", ZT_GGUF_AS_IS},
    {"h.%d.mlp.c_fc.weight", "blk.%d.ffn_up.weight", ZT_GGUF_TRANSPOSED},
    {"h.%d.mlp.c_fc.bias", "blk.%d.ffn_up.bias", ZT_GGUF_AS_IS},
    {"h.%d.mlp.c_proj.weight", "blk.%d.ffn_down.weight", ZT_GGUF_TRANSPOSED},
    {"h.%d.mlp.c_proj.bias", "blk.%d.ffn_down.bias", ZT_GGUF_AS_IS},
    {NULL, NULL, ZT_GGUF_AS_IS},
};

static const struct zt_gguf_name llama_names[] = {
    {"embed_tokens.weight", "token_embd.weight", ZT_GGUF_AS_IS},
    {"norm.weight", "output_norm.weight", ZT_GGUF_AS_IS},
    {"lm_head.weight", "output.weight", ZT_GGUF_AS_IS},
    {"layers.%d.input_layernorm.weight", "blk.%d.attn_norm.weight", ZT_GGUF_AS_IS},
    {"layers.%d.self_attn.q_proj.weight", "blk.%d.attn_q.weight", ZT_GGUF_QUERY_ROWS},
    {"layers.%d.self_attn.q_proj.bias", "blk.%d.attn_q.bias", ZT_GGUF_QUERY_ROWS},
    {"layers.%d.self_attn.k_proj.weight", "blk.%d.attn_k.weight", ZT_GGUF_KEY_ROWS},
    {"layers.%d.self_attn.k_proj.bias", "blk.%d.attn_k.bias", ZT_GGUF_KEY_ROWS},
    {"layers.%d.self_attn.v_proj.weight", "blk.%d.attn_v.weight", ZT_GGUF_AS_IS},
    {"layers.%d.self_attn.v_proj.bias", "blk.%d.attn_v.bias", ZT_GGUF_AS_IS},
    {"layers.%d.self_attn.o_proj.weight", "blk.%d.attn_output.weight", ZT_GGUF_AS_IS},
    {"layers.%d.self_attn.o_proj.bias", "blk.%d.attn_output.bias", ZT_GGUF_AS_IS},
    {"layers.%d.self_attn.q_norm.weight", "blk.%d.attn_q_norm.weight", ZT_GGUF_AS_IS},
    {"layers.%d.self_attn.k_norm.weight", "blk.%d.attn_k_norm.weight", ZT_GGUF_AS_IS},
    {"layers.%d.post_attention_layernorm.weight", "blk.%d.ffn_norm.weight",
     ZT_GGUF_AS_IS},
    {"layers.%d.mlp.gate_proj.weight", "blk.%d.ffn_gate.weight", ZT_GGUF_AS_IS},
    {"layers.%d.mlp.up_proj.weight", "blk.%d.ffn_up.weight", ZT_GGUF_AS_IS},
    {"layers.%d.mlp.down_proj.weight", "blk.%d.ffn_down.weight", ZT_GGUF_AS_IS},
    {NULL, NULL, ZT_GGUF_AS_IS},
};

static const struct zt_gguf_kind kinds[] = {
    {"gpt2", "gpt2", gpt2_names, true, false},
    {"llama", "llama", llama_names, false, true},
    {"mistral", "llama", llama_names, false, true},
    {"qwen2", "qwen2", llama_names, false, false},
    {"qwen3", "qwen3", llama_names, false, false},
};

const struct zt_gguf_kind *zt_gguf_kind_find(const char *model_type)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (strcmp(kinds[i].model_type, model_type) == 0)
            return &kinds[i];
    return NULL;
}

const struct zt_gguf_name *zt_gguf_name_find(const struct zt_gguf_kind *kind,
                                             const char *name, int64_t layers, int *layer)
{
    static const char *const words[] = {"transformer.", "model."};

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (strncmp(name, words[i], strlen(words[i])) == 0)
            name += strlen(words[i]);
    for (const struct zt_gguf_name *n = kind->names; n->ours; n++) {
        const char *at = strstr(n->ours, "%d");
        size_t head = at ? (size_t)(at - n->ours) : 0;
        char *end;

        *layer = 0;
        if (!at && strcmp(n->ours, name) == 0)
            return n;
        if (!at || strncmp(n->ours, name, head) != 0 || name[head] < '0' ||
            name[head] > '9')
            continue;
        *layer = (int)strtol(name + head, &end, 10);
        if (strcmp(at + 2, end) == 0 && *layer < layers)
            return n;
    }
    return NULL;
}
