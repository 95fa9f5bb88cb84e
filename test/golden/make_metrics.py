"""Print the numbers of test/unit/engine/test_metrics.c: scikit-learn and scipy on 1,000 random predictions; and those of
test_spans.c and test_text_scores.c there: seqeval on 50 rows of tags,
sacrebleu and rouge_score on the texts of the latter.

    test/peers/setup build/venv
    build/venv/bin/pip install scikit-learn scipy sacrebleu rouge_score seqeval
    build/venv/bin/python test/golden/make_metrics.py
"""

import json
import re

import sacrebleu
from rouge_score import rouge_scorer
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from seqeval.metrics import f1_score as entity_f1, precision_score, recall_score

NUM = 1000


def numbers(seed):
    """As next_random() there."""
    while True:
        seed = (seed * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        yield seed >> 33


def classes(num, seed):
    r = numbers(seed)
    meant = [next(r) % num for _ in range(NUM)]
    return meant, [m if next(r) % 3 else next(r) % num for m in meant]


for num in (2, 5):
    meant, predicted = classes(num, num)
    print(num, "%.15g %.15g %.15g %.15g" % (
        accuracy_score(meant, predicted),
        f1_score(meant, predicted, labels=[1], average=None)[0],
        f1_score(meant, predicted, average="macro"), matthews_corrcoef(meant, predicted)))
r = numbers(9)
x = [next(r) % 50 / 10 for _ in range(NUM)]  # with ties
y = [a + next(r) % 1000 / 100 for a in x]
print("%.15g %.15g" % (pearsonr(x, y)[0], spearmanr(x, y)[0]))

tags = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "E-LOC", "S-LOC"]
r = numbers(11)
meant = [[next(r) % 7 for _ in range(20)] for _ in range(50)]
predicted = [[c if next(r) % 4 else next(r) % 7 for c in row] for row in meant]
said = [[[tags[c] for c in row] for row in rows] for rows in (meant, predicted)]
print("%.15g %.15g %.15g" % (precision_score(*said), recall_score(*said), entity_f1(*said)))

# each text of the unit test alone, then all of them
source = open("test/unit/engine/test_text_scores.c", encoding="utf-8").read()
pairs = [[json.loads(t) for t in p] for p in re.findall(r'^    \{("[^\n]*"), ("[^\n]*")\},$', source, re.M)]
scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
for some in [[p] for p in pairs] + [pairs]:
    written, meant = [p[0] for p in some], [p[1] for p in some]
    kinds = [scorer.score(m, w) for w, m in some]
    print("    {%s}," % ", ".join("%.15g" % x for x in [sacrebleu.corpus_bleu(written, [meant]).score, sacrebleu.corpus_chrf(written, [meant]).score] + [
        100 * sum(s[k].fmeasure for s in kinds) / len(kinds) for k in ("rouge1", "rouge2", "rougeL")]))
