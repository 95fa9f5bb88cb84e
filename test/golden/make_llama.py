"""Write llama3/, mistral/, qwen2/, qwen3/ and gemma/ of test/golden/ (golden.py: what is in them).

    test/peers/setup build/venv
    build/venv/bin/python test/golden/make_llama.py [NAME...]

llama3: frequencies stretched (each of the three cases occurs), two query heads to a key
head, heads wider than hidden_size / num_attention_heads, a head of its own.
qwen2: biases on q, k and v, three query heads to a key head, the head tied to the
embedding, and a window of 9 tokens in the last layer.
mistral: a window of 9 tokens in every layer.
qwen3: q and k normed, heads wider than hidden_size / num_attention_heads.
gemma: norms by 1 + w, gelu, a scaled embedding, one key head, a tied head.
"""

import sys

import golden
import theirs


SIZES = dict(vocab_size=131, max_position_embeddings=64)
MODELS = {
    "llama3": ("llama", dict(
        seed=11, num_hidden_layers=2, hidden_size=48, intermediate_size=104,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0,
                             low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=32))),
    "qwen2": ("qwen2", dict(
        seed=4, num_hidden_layers=3, hidden_size=48, intermediate_size=80,
        num_attention_heads=6, num_key_value_heads=2, tie_word_embeddings=True,
        use_sliding_window=True, sliding_window=9, max_window_layers=2,
        rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "mistral": ("mistral", dict(
        seed=8, num_hidden_layers=2, hidden_size=48, intermediate_size=104,
        num_attention_heads=6, num_key_value_heads=2, sliding_window=9,
        rope_parameters=dict(rope_type="default", rope_theta=1e4))),
    "qwen3": ("qwen3", dict(
        seed=8, num_hidden_layers=2, hidden_size=40, intermediate_size=96,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "gemma": ("gemma", dict(
        seed=13, num_hidden_layers=2, hidden_size=44, intermediate_size=104,
        num_attention_heads=4, num_key_value_heads=1, head_dim=24,
        rope_parameters=dict(rope_type="default", rope_theta=1e4))),
}


def main(names):
    for name in names or MODELS:
        kind, how = MODELS[name]
        golden.write(name, theirs.make_llama(kind, spread=0.18, **SIZES, **how))


if __name__ == "__main__":
    main(sys.argv[1:])
