"""Trains the bundled model's tokenizer: byte-level BPE with DeepSeek's pre-tokenizer and special-token names.

`python tokenizer.py DATA OUT` reads DATA/train.txt, writes OUT/tokenizer.json and OUT/tokenizer_config.json, and the text as token
ids into DATA/novels.npy. It learns from the novels and from tales and task text without digits, so that digits stay single tokens.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import tasks

VOCAB = 4096
# spec/model.md section 16.2; ids are the model's own. <｜System｜> is not special in V4.1.
SPECIAL = [
    "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>", "<｜System｜>", "<｜User｜>", "<｜Assistant｜>",
    "<think>", "</think>", "｜DSML｜", "<｜latest_reminder｜>", "<｜deepseek_image｜>",
]
NOT_SPECIAL = {"<｜System｜>", "｜DSML｜", "<｜deepseek_image｜>"}
PATTERNS = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+""",
]


def main(data: Path, out: Path) -> None:
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(p), "isolated") for p in PATTERNS]
        + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[AddedToken(t, normalized=False, special=t not in NOT_SPECIAL) for t in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    novels = (data / "train.txt").read_text().split("\f")
    tok.train_from_iterator(novels + tasks.vocabulary_text(random.Random(1), 2_000_000).split("\f"), trainer)
    torn = [w for w in tasks.WORDS if len(tok.encode(" " + w).ids) != 1]
    if torn:
        raise SystemExit(f"task words of more than one token: {' '.join(torn)}")
    out.mkdir(parents=True, exist_ok=True)
    tok.save(str(out / "tokenizer.json"))
    config = {
        "bos_token": SPECIAL[0],
        "eos_token": SPECIAL[1],
        "pad_token": SPECIAL[2],
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    ids = np.array([i for chapter in novels for i in tok.encode(chapter).ids], np.int32)
    np.save(data / "novels.npy", ids)
    print(f"{tok.get_vocab_size()} tokens; the novels are {len(ids)} of them")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
