#!/usr/bin/env bash
# Makes a container image of a Debian package: scripts/image.sh PACKAGE [TAG]
# Uses the first of podman, buildah and docker that works here. WEIR_IMAGE_BASE names another base image.
set -euo pipefail
cd "$(dirname "$0")/.."

package=$(realpath "${1:?usage: scripts/image.sh PACKAGE [TAG]}")
tag=${2:-weir:latest}

for builder in podman buildah docker; do
    if command -v "$builder" >/dev/null && "$builder" info >/dev/null 2>&1; then break; fi
    builder=
done
if [[ -z $builder ]]; then
    echo "no image can be built here: neither podman nor buildah nor docker works" >&2
    exit 3
fi

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
cp "$package" packaging/Containerfile "$context"
arguments=(--file "$context/Containerfile" --tag "$tag")
[[ -z ${WEIR_IMAGE_BASE:-} ]] || arguments+=(--build-arg "BASE=$WEIR_IMAGE_BASE")
"$builder" build "${arguments[@]}" "$context" >&2
echo "$builder $tag"
