#!/usr/bin/env bash
# Installs the packages for the tests, the demo and the benches on Debian 12 / Ubuntu 24.04 or later. Running it again does nothing.
#   scripts/setup.sh [run|test|bench]     run: the demo; test (the default): also the tests; bench: also the measuring tools
# Needs root or sudo only if a package is missing. Does not install a Rust toolchain.
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1:-test}
packages=(ca-certificates gcc libc6-dev xrootd-client)
case $what in
run) ;;
test) packages+=(xrootd-server nginx-light libnginx-mod-http-dav-ext openssl glusterfs-server glusterfs-client moosefs-master moosefs-chunkserver moosefs-client g++ libxrootd-client-dev xrootd-fuse gfal2-plugin-xrootd golang-go python3 python3-venv e2fsprogs xfsprogs util-linux mount systemd fio iperf3 iproute2 prometheus buildah debootstrap voms-clients voms-dev globus-proxy-utils libssl-dev krb5-kdc krb5-admin-server krb5-user postgresql patroni etcd-server etcd-client) ;;
bench) packages+=(xrootd-server glusterfs-server glusterfs-client python3 python3-venv g++ libxrootd-client-dev fio iperf3 iproute2) ;;
*)
    echo "usage: $0 [run|test|bench]" >&2
    exit 2
    ;;
esac

# Debian starts what it installs. The tests start databases of their own, so those of the packages stay off: no service is started or
# enabled, and PostgreSQL gets no cluster "main". An installation that was there before stays as it is.
policy=/usr/sbin/policy-rc.d
no_cluster=/etc/postgresql-common/createcluster.d/weir-tests.conf
made=()
hold_databases() {
    trap release_databases EXIT
    if [[ ! -e $policy ]]; then
        made+=("$policy")
        printf '%s\n' '#!/bin/sh' 'case $1 in etcd* | patroni* | postgresql*) exit 101 ;; esac' | "${as_root[@]}" tee "$policy" >/dev/null
        "${as_root[@]}" chmod 755 "$policy"
    fi
    made+=("$no_cluster")
    "${as_root[@]}" mkdir -p "${no_cluster%/*}"
    echo 'create_main_cluster = false' | "${as_root[@]}" tee "$no_cluster" >/dev/null
}
release_databases() {
    ((${#made[@]} == 0)) || "${as_root[@]}" rm -f "${made[@]}"
    made=()
}

missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if ((${#missing[@]})); then
    as_root=()
    if [[ $(id -u) != 0 ]]; then
        command -v sudo >/dev/null || { echo "setup: missing packages, and neither root nor sudo: ${missing[*]}" >&2; exit 1; }
        as_root=(sudo)
    fi
    echo "setup: installing ${missing[*]}"
    "${as_root[@]}" apt-get update -q
    hold_databases
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
    release_databases
    [[ " ${missing[*]} " != *" etcd-server "* ]] || "${as_root[@]}" systemctl --quiet disable etcd.service
    [[ " ${missing[*]} " != *" patroni "* ]] || "${as_root[@]}" systemctl --quiet disable patroni.service
fi

command -v cargo >/dev/null || { echo "setup: no cargo found; install a Rust toolchain (https://rustup.rs) and put it into PATH" >&2; exit 1; }

# Python packages in a virtual environment of the system's Python; rebuilt only when the list has changed.
if [[ $what != run ]]; then
    list=tests/requirements.txt
    if ! cmp -s "$list" .venv/installed.txt; then
        echo "setup: Python packages into .venv"
        rm -rf .venv
        /usr/bin/python3 -m venv .venv
        .venv/bin/pip install -q --disable-pip-version-check -r "$list"
        cp "$list" .venv/installed.txt
    fi
fi

if [[ $what == test ]]; then
    # The source of the package has XRootD's own test scripts, which tests run against weir.
    xrootd=$(grep '^xrootd==' tests/requirements.txt)
    if [[ ! -e .venv/sources/${xrootd/==/-}.tar.gz ]]; then
        echo "setup: the source of $xrootd into .venv/sources"
        .venv/bin/pip download -q --disable-pip-version-check --no-deps --no-binary xrootd -d .venv/sources "$xrootd" ||
            echo "setup: it could not be fetched; XRootD's own test scripts are skipped and say so" >&2
    fi
    # Its modules come from Go's own registry, which some sites block.
    scripts/gohep.sh || echo "setup: go-hep's programs could not be built; their tests are skipped and say so" >&2
fi
