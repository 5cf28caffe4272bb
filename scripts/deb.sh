#!/usr/bin/env bash
# Makes the Debian package build/weir_VERSION_ARCH.deb from an existing binary: scripts/deb.sh BINARY
# The binary writes its man pages and completions itself.
set -euo pipefail
cd "$(dirname "$0")/.."

binary=$(realpath "${1:?usage: scripts/deb.sh BINARY}")
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
arch=$(dpkg --print-architecture)
# The same commit gives the same bytes.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
new=
trap 'rm -rf "$work" ${new:+"$new"}' EXIT
root=$work/root
umask 022

install -D -m 755 "$binary" "$root/usr/bin/weir"
strip --strip-unneeded "$root/usr/bin/weir"
install -D -m 644 packaging/weir.service "$root/lib/systemd/system/weir.service"
install -D -m 644 -t "$root/lib/systemd/system" packaging/weir-backup.service packaging/weir-backup.timer
install -D -m 644 packaging/sysusers.conf "$root/usr/lib/sysusers.d/weir.conf"
install -D -m 644 packaging/tmpfiles.conf "$root/usr/lib/tmpfiles.d/weir.conf"
install -D -m 644 -t "$root/usr/share/weir" packaging/weir-alerts.yml packaging/weir-dashboard.json
install -D -m 644 -t "$root/usr/share/doc/weir" README.md
# In the same folders as in the repository, so that links between the pages work.
find docs -type f -print0 | while IFS= read -r -d '' page; do install -D -m 644 "$page" "$root/usr/share/doc/weir/$page"; done
generated=$work/generated
"$binary" generate "$generated"
for page in "$generated"/man/*.[1-8]; do
    install -D -m 644 "$page" "$root/usr/share/man/man${page##*.}/$(basename "$page")"
    gzip -9n "$root/usr/share/man/man${page##*.}/$(basename "$page")"
done
completion() { install -D -m 644 "$generated/completions/$1" "$root/usr/share/$2"; }
completion weir.bash bash-completion/completions/weir
completion _weir zsh/vendor-completions/_weir
completion weir.fish fish/vendor_completions.d/weir.fish

# The binary's libraries, in the versions that it needs.
mkdir "$work/debian"
printf 'Source: weir\n\nPackage: weir\nArchitecture: any\n' >"$work/debian/control"
libraries=$(cd "$work" && dpkg-shlibdeps -O root/usr/bin/weir | sed -n 's/^shlibs:Depends=//p')

mkdir "$root/DEBIAN"
install -m 755 packaging/debian/{postinst,prerm,postrm} "$root/DEBIAN"
(cd "$root" && find . -type f -not -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
cat >"$root/DEBIAN/control" <<CONTROL
Package: weir
Version: $version
Architecture: $arch
Maintainer: the weir developers <root@localhost>
Installed-Size: $(du -sk --apparent-size "$root" | cut -f1)
Depends: $libraries, systemd | passwd
Suggests: xrootd-client
Section: net
Priority: optional
Description: storage for physics experiments
 Takes files from stock XRootD clients, keeps them through any crash, and
 gives them back with every page checked. One binary, no other service.
CONTROL
find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

mkdir -p build
package=build/weir_${version}_$arch.deb
# Whoever reads the package meanwhile, or makes it at the same time, sees a whole one.
new=$(mktemp -p build "weir_XXXXXX.deb.new")
dpkg-deb --root-owner-group --build "$root" "$new" >/dev/null
chmod 644 "$new"
mv "$new" "$package"
echo "$package"
