"""Fetches a model into the Hugging Face cache, where LLM() finds it:

    python -m deepinfer.fetch [owner/name[@revision]]

Without an id: the model of the variable DEEPINFER_HF_MODEL_DIR, else the released one. What is there already is not fetched
again, and an interrupted download goes on where it stopped. HF_HOME, HF_HUB_CACHE, HF_TOKEN and HF_ENDPOINT have their usual
meanings.
"""

from __future__ import annotations

import argparse
import os
import sys

# What the engine reads, and the licence. Other formats of the same weights stay where they are.
PATTERNS = ["*.json", "*.safetensors", "LICENSE*", "README.md"]


def fetch(model: str | None = None) -> str:
    """Fetches a model and returns its folder."""
    from huggingface_hub import snapshot_download

    if model is None:
        from .llm import options

        option = options()["model"]
        model = (os.environ.get(option.env) if option.env else None) or option.default
    if os.path.isdir(model):
        return model
    repository, _, revision = model.partition("@")
    return str(snapshot_download(repository, revision=revision or None, allow_patterns=PATTERNS))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deepinfer.fetch", description="Fetch a model into the Hugging Face cache.")
    parser.add_argument("model", nargs="?", help="owner/name[@revision]; default: the released model")
    given = parser.parse_args(arguments)
    try:
        print(fetch(given.model))
    except KeyboardInterrupt:
        return 130
    except Exception as bad:  # of the hub's package: no network, no such repository, no permission, a full disk
        print(f"deepinfer.fetch: error: {bad}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
