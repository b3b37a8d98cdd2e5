#!/bin/sh
# Checks the files that describe the deployment, offline. Usage: scripts/deploy_checks.sh FOLDER_OF_THE_TOOLS
set -eu
tools=$1
cd "$(dirname "$0")/.."

"$tools/hadolint" Dockerfile
"$tools/check-jsonschema" --builtin-schema vendor.compose-spec docker-compose.yml deploy/second-node.yaml
"$tools/yamllint" --strict \
    --config-data '{extends: default, rules: {line-length: {max: 140}, document-start: disable, braces: {max-spaces-inside: 1}, comments: {min-spaces-from-content: 1}}}' \
    docker-compose.yml deploy workflows
