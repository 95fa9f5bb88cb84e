"""Write test/golden/bert/ (encoders.py says what the files are).

    test/peers/setup build/venv
    build/venv/bin/python test/golden/make_bert.py
"""

import encoders
import check_bert

check_bert.SIZES.update(hidden_size=24, num_hidden_layers=2, intermediate_size=40)
encoders.write("bert", {task: check_bert.make_model(task) for task in ("classify", "tag", "masked_lm")},
               rounding=("self.key.bias",))
