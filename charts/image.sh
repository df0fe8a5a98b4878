#!/usr/bin/env bash
# Build the image from charts/Dockerfile with buildah or, where there is none, with docker, and print its size:
# charts/image.sh [NAME:TAG [other arguments of the build]]. All times in it are that of the commit, or SOURCE_DATE_EPOCH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' app/turnstile/__init__.py)
name=${1:-turnstile:$version}
shift || true
revision=${REVISION:-$(git describe --always --abbrev=40 --dirty --exclude='*')}
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
arguments=(--file charts/Dockerfile --tag "$name" --build-arg "VERSION=$version" --build-arg "REVISION=$revision" "$@" .)
if command -v buildah >/dev/null; then
  buildah build --timestamp "$epoch" "${arguments[@]}"
  buildah images --format '{{.Name}}:{{.Tag}} {{.Size}}' "$name"
elif docker info >/dev/null 2>&1; then
  docker build --build-arg "SOURCE_DATE_EPOCH=$epoch" "${arguments[@]}"
  docker image inspect --format '{{index .RepoTags 0}} {{.Size}} bytes' "$name"
else
  printf 'error: neither buildah nor a running docker is here: install one (Debian: apt-get install buildah)\n' >&2
  exit 1
fi
