"""Write test/golden/deberta/ (encoders.py says what the files are): classes by a model like the published v3, tags by
one whose relative positions have projections of their own, with absolute positions, types and narrow embeddings,
masked tokens by one with the convolution of the large v2 and the head that is not legacy.

    test/peers/setup build/venv
    build/venv/bin/python test/golden/make_deberta.py
"""

import encoders
import check_deberta

check_deberta.SIZES.update(hidden_size=24, num_hidden_layers=2, intermediate_size=40)
MODELS = {"classify": {},
          "tag": dict(share_att_key=False, position_biased_input=True, type_vocab_size=2, embedding_size=16,
                      norm_rel_ebd="none", position_buckets=-1),
          "masked_lm": dict(check_deberta.V2_XL, legacy=False)}
encoders.write("deberta", {task: check_deberta.make_model(task, **how) for task, how in MODELS.items()},
               rounding=("self.key_proj.bias", "pos_key_proj.bias"))
