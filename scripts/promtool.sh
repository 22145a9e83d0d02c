#!/bin/sh
# Builds Prometheus' promtool and prints where it is:
#
#   env $(scripts/promtool.sh) go test -v ./monitoring
#
# What is there already is left alone. WARDROP_TOOLS is the directory, default
# ~/.cache/wardrop/tools. Progress goes to the standard error.
set -eu

version=v0.53.0
tools=${WARDROP_TOOLS:-$HOME/.cache/wardrop/tools}
found=$tools/promtool-$version
if [ ! -x "$found" ]; then
	echo "promtool: building $version into $tools" >&2
	# In a module of its own, for it cannot be installed by its name: its go.mod replaces modules.
	module=$(mktemp -d)
	trap 'rm -rf "$module"' EXIT
	mkdir -p "$tools"
	(cd "$module" && go mod init promtool && go get "github.com/prometheus/prometheus/cmd/promtool@$version" &&
		go build -o "$found.new" github.com/prometheus/prometheus/cmd/promtool) >&2
	mv "$found.new" "$found"
fi
echo "WARDROP_PROMTOOL=$found"
