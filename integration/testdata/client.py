"""Asks an OpenAI API with the official client and prints what came, as JSON.

Usage: client.py BASE_URL MODEL
"""

import json
import sys

import openai

base, model = sys.argv[1:]
client = openai.OpenAI(base_url=base, api_key="none", max_retries=0, timeout=60)


def ask(tokens, **more):
    return client.chat.completions.create(
        model=more.pop("model", model),
        messages=[{"role": "user", "content": "Count from one to a hundred."}],
        max_tokens=tokens,
        extra_body={"ignore_eos": True},  # llama.cpp's own: to the maximum
        **more,
    )


result = {"models": [m.id for m in client.models.list()]}
result["chat"] = ask(8).choices[0].message.content

text, usage = "", None
for chunk in ask(24, stream=True, stream_options={"include_usage": True}):
    if chunk.choices:
        text += chunk.choices[0].delta.content or ""
    usage = chunk.usage or usage
result["stream"] = text
result["stream_tokens"] = usage.completion_tokens

with ask(1500, stream=True) as stream:
    for count, _ in enumerate(stream, 1):
        if count == 3:
            break
result["cancelled_after"] = count

try:
    ask(1, model="other")
except openai.APIStatusError as e:
    result["refused"] = type(e).__name__

json.dump(result, sys.stdout)
