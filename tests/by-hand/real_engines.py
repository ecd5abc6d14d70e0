#!/usr/bin/env python3
"""Checks a running Warmpath against real engines: does a prefix stay with its replica, and is every prediction right?

    python3 tests/by-hand/real_engines.py http://127.0.0.1:8080 MODEL [--prefixes 8] [--rounds 6] [--seed 1] [--pause 0.1]

Needs: Envoy with the filter's `response_header: true`; vLLM with `--enable-prompt-tokens-details` (else the answer
does not say what was cached), its KV events on, and a context of 1,024 tokens or more. The standard library is enough.

Sends text completions and chats that share prefixes, one at a time and apart, and compares for each the receipt of the filter
(`x-warmpath-cached-tokens`, `x-warmpath-prompt-tokens`) with the engine's own `usage`. Exit status 0: every scored
request was predicted exactly, and every prefix that a replica still held went back to it.
"""

import argparse
import collections
import json
import random
import sys
import time
import urllib.request

WORDS = """amber basin cedar delta ember fjord grove harbor inlet jetty kelp lagoon meadow notch orchard prairie quarry
ridge summit tundra upland valley willow yonder zephyr""".split()


def words(random_source, count):
    return " ".join(random_source.choice(WORDS) for _ in range(count))


def body_of(shape, model, prefix, question):
    if shape == "completion":
        return "/v1/completions", {"model": model, "prompt": f"{prefix} {question}", "max_tokens": 3}
    messages = [{"role": "system", "content": prefix}, {"role": "user", "content": question}]
    return "/v1/chat/completions", {"model": model, "messages": messages, "max_tokens": 3}


def post(base, path, body):
    request = urllib.request.Request(base + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer), {name.lower(): value for name, value in answer.headers.items()}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("base", help="Envoy's address")
    arguments.add_argument("model")
    arguments.add_argument("--prefixes", type=int, default=8)
    arguments.add_argument("--rounds", type=int, default=6)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--pause", type=float, default=0.1,
                           help="seconds between requests: until an end is reported (50 ms), its load still counts")
    options = arguments.parse_args()
    source = random.Random(options.seed)
    prefixes = [words(source, source.randint(80, 200)) for _ in range(options.prefixes)]

    outcomes, spread, wrong = collections.Counter(), collections.Counter(), []
    exact = scored = returned = left = cached = prompt = 0
    home = {}
    for turn in range(options.rounds):
        for number in source.sample(range(options.prefixes), options.prefixes):
            for shape in ("completion", "chat"):
                path, body = body_of(shape, options.model, prefixes[number], words(source, 12))
                time.sleep(options.pause)
                answer, headers = post(options.base, path, body)
                usage = answer["usage"]
                actual = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
                endpoint = headers.get("x-warmpath-endpoint")
                outcome = headers.get("x-warmpath-outcome", "no receipt")
                outcomes[outcome, headers.get("x-warmpath-reason", "")] += 1
                spread[endpoint] += 1
                cached += actual
                prompt += usage["prompt_tokens"]
                before = home.setdefault((number, shape), endpoint)
                if turn > 0:
                    returned += endpoint == before
                    left += endpoint != before
                home[number, shape] = endpoint
                if outcome == "scored":
                    scored += 1
                    predicted = int(headers["x-warmpath-cached-tokens"]), int(headers["x-warmpath-prompt-tokens"])
                    if predicted == (actual, usage["prompt_tokens"]):
                        exact += 1
                    else:
                        wrong.append((turn, number, shape, predicted, (actual, usage["prompt_tokens"])))

    print(f"requests              {sum(outcomes.values())}")
    print(f"outcomes              {dict(outcomes)}")
    print(f"requests per endpoint {dict(spread)}")
    print(f"scored and exact      {exact} of {scored} (cached and prompt tokens both)")
    print(f"back to its replica   {returned} of {returned + left} after the first round")
    print(f"hit rate of engines   {100 * cached / max(prompt, 1):.1f} % of {prompt} prompt tokens")
    for entry in wrong[:10]:
        print("not as predicted: round %d, prefix %d, %s: predicted (cached, prompt) %s, engine %s" % entry)
    return 0 if scored and exact == scored and not left else 1


if __name__ == "__main__":
    sys.exit(main())
