"""Asks an Anthropic API with the official client and prints what came, as JSON.

Usage: anthropic_client.py BASE_URL MODEL
"""

import json
import sys

import anthropic

base, model = sys.argv[1:]
client = anthropic.Anthropic(base_url=base, api_key="none", max_retries=0, timeout=60)
messages = [{"role": "user", "content": "Count from one to a hundred."}]

answer = client.messages.create(model=model, max_tokens=8, messages=messages)
result = {"text": answer.content[0].text, "output_tokens": answer.usage.output_tokens}

with client.messages.stream(model=model, max_tokens=16, messages=messages) as stream:
    result["stream"] = "".join(stream.text_stream)
    result["stop_reason"] = stream.get_final_message().stop_reason

result["counted"] = client.messages.count_tokens(model=model, messages=messages).input_tokens

try:
    client.messages.create(model="other", max_tokens=1, messages=messages)
except anthropic.APIStatusError as e:
    result["refused"] = type(e).__name__

json.dump(result, sys.stdout)
