"""Write test/golden/llama3/ and test/golden/qwen2/ (golden.py says what is in them).

    test/peers/setup build/venv
    build/venv/bin/python test/golden/make_llama.py

llama3: frequencies stretched (each of the three cases occurs), two query heads to a key
head, heads wider than hidden_size / num_attention_heads, a head of its own.
qwen2: biases on q, k and v, three query heads to a key head, the head tied to the
embedding, and a window of 9 tokens in the last layer.
"""

import golden
import theirs


def main():
    golden.write("llama3", theirs.make_llama(
        "llama", seed=11, spread=0.18, num_hidden_layers=2, hidden_size=48, intermediate_size=104,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=131,
        max_position_embeddings=64, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0,
                             low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=32)))
    golden.write("qwen2", theirs.make_llama(
        "qwen2", seed=4, spread=0.18, num_hidden_layers=3, hidden_size=48, intermediate_size=80,
        num_attention_heads=6, num_key_value_heads=2, vocab_size=131, max_position_embeddings=64,
        tie_word_embeddings=True, use_sliding_window=True, sliding_window=9, max_window_layers=2,
        rope_parameters=dict(rope_type="default", rope_theta=1e6)))


if __name__ == "__main__":
    main()
