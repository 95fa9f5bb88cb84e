"""Scores of texts and tags: what build/release/peers/scores counts of 1,000 random predictions is what
sacrebleu, rouge_score and seqeval do."""

import json
import random
import subprocess
import warnings

TOOL = "build/release/peers/scores"
ROOM = 1e-9  # of scores from 0 to 100, of F1 from 0 to 1

WORDS = ["the", "The", "file", "Paket", "größer", "3.14", "1,000", "x-1", "5-6", "e.g.", "a,b", "Bibliothek", "İx", "\u212a8", "naïve",
         "&quot;q&quot;", "&amp;lt;", "<skipped>", "foo\u00a0bar", "a\x1cb", "日本語", "🙂", "(see", "that).", "well-", "-\n", "line\nend",
         ".", ",", "--", "[x]", "C++", "it's", "v2.0,", "…", "10.", ".5", "A/B", "$5", "100%", "\u2009", "e\u0301", "ſ", "“quoted”"]


def ask(question):
    run = subprocess.run([TOOL], input=json.dumps(question) + "\n", capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def compare(ours, theirs, what):
    for name, want in theirs.items():
        assert abs(ours[name] - want) <= ROOM, f"{what}: {name} is {ours[name]!r}, not {want!r}"


def text_of(r, most):
    return " ".join(r.choice(WORDS) for _ in range(r.randint(1, most)))


def changed(r, text):
    words = text.split(" ")
    for _ in range(r.randint(0, 3)):
        at = r.randrange(len(words))
        words[at:at + r.randint(0, 1)] = [r.choice(WORDS)] * r.randint(0, 2)
        words = words or [""]
    return " ".join(words)


def texts_have_the_scores_of_sacrebleu_and_rouge_score(_folder):
    import sacrebleu
    from rouge_score import rouge_scorer

    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
    r = random.Random(7)
    for num, most in [(1000, 20), (1, 3), (1, 30), (3, 1), (20, 6)] + [(1, 12)] * 200:
        meant = [text_of(r, most) for _ in range(num)]
        written = [changed(r, m) if r.random() < 0.8 else text_of(r, most) for m in meant]
        kinds = [scorer.score(m, w) for m, w in zip(meant, written)]
        theirs = {k: 100 * sum(s[k].fmeasure for s in kinds) / num for k in ("rouge1", "rouge2", "rougeL")}
        theirs["bleu"] = sacrebleu.corpus_bleu(written, [meant]).score
        theirs["chrf"] = sacrebleu.corpus_chrf(written, [meant]).score
        compare(ask({"written": written, "meant": meant}), theirs, f"{num} texts of up to {most} words: {written[:1]} {meant[:1]}")
    return f"1,000 texts: {theirs_of_note(r, sacrebleu)}, and 204 small sets"


def theirs_of_note(r, sacrebleu):
    bleu = sacrebleu.metrics.BLEU()
    bleu.corpus_score(["a"], [["a"]])
    signature = str(bleu.get_signature())
    assert signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:"), signature
    return f"equal to {ROOM:g}, signature {signature}"


def tags_have_the_scores_of_seqeval(_folder):
    from seqeval.metrics import f1_score, precision_score, recall_score

    warnings.filterwarnings("ignore")
    r = random.Random(8)
    names = ["O"] + [f"{p}-{t}" for t in ("PER", "LOC", "MISC-x") for p in "BIES"]
    for num in [1000] + [1] * 100:
        meant = [[r.randrange(len(names)) if r.random() < 0.5 else 0 for _ in range(r.randint(1, 20))] for _ in range(num)]
        predicted = [[c if r.random() < 0.8 else r.randrange(len(names)) for c in row] for row in meant]
        said = [[[names[c] for c in row] for row in rows] for rows in (meant, predicted)]
        theirs = {"precision": precision_score(*said), "recall": recall_score(*said), "f1": f1_score(*said)}
        compare(ask({"tags": names, "predicted": predicted, "meant": meant}), theirs, f"{num} rows")
    return "1,000 rows and 100 single ones equal to seqeval"
