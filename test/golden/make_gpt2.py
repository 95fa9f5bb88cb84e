"""Write test/golden/gpt2/ (golden.py says what is in it).

    test/peers/setup build/venv
    build/venv/bin/python test/golden/make_gpt2.py
"""

import golden
import theirs

if __name__ == "__main__":
    golden.write("gpt2", theirs.make_model(seed=4, spread=0.25, n_layer=2, n_head=3, n_embd=48,
                                           vocab_size=131, n_positions=40))
