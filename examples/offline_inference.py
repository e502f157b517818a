"""Continues a few prompts and answers in a chat.

    pip install .                                # or: ./build.sh && export PYTHONPATH=python
    python examples/offline_inference.py

runs the bundled model; --model owner/name another one, once `python -m deepinfer.fetch owner/name` has fetched it.
"""

import argparse
from pathlib import Path

from deepinfer import LLM, SamplingParams

TINY = Path(__file__).resolve().parents[1] / "models" / "tiny"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(TINY), help="a folder, or a hub id that python -m deepinfer.fetch has fetched")
    arguments = parser.parse_args()

    prompts = ["She was", "It is a truth universally acknowledged, that", "The family of", '"My dear Mr. Bennet," said']
    params = SamplingParams(temperature=0.7, top_p=0.95, max_tokens=40, seed=4)

    with LLM(model=arguments.model) as llm:
        for output in llm.generate(prompts, params):
            print(f"{output.prompt!r} -> {output.outputs[0].text!r} ({output.outputs[0].finish_reason})")

        print("\nAs it comes: She was", end="")
        for output in llm.stream("She was", params, delta=True):
            for choice in output.outputs:
                print(choice.text, end="", flush=True)
        print()

        conversation = [{"role": "user", "content": "Good morning."}]
        reply = llm.chat(conversation, params, use_tqdm=False, thinking=False)[0].outputs[0]
        print(f"\nChat: {reply.message}")


if __name__ == "__main__":
    main()
