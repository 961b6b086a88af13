#!/usr/bin/env bash
# Makes the Debian package from a program that is built already:
#
#   packaging/debian/build.sh [PROGRAM [DIRECTORY]]     default: target/release/fairlift, target/package
#
# Needs dpkg-deb, gzip and strip (packages dpkg, gzip, binutils). Pages and completions are those that the program writes.
set -euo pipefail
cd "$(dirname "$0")/../.."
program=${1:-target/release/fairlift} out=${2:-target/package}
version=$("$program" --version | cut -d' ' -f2)-${REVISION:-1}
maintainer=${MAINTAINER:-Fairlift developers <fairlift@localhost.localdomain>}
architecture=$(dpkg --print-architecture)
root=$(mktemp -d "${TMPDIR:-/tmp}/fairlift-deb.XXXXXX")
trap 'rm -rf "$root"' EXIT
umask 022
chmod 755 "$root"

doc=$root/usr/share/doc/fairlift
install -D -m 755 "$program" "$root/usr/bin/fairlift"
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/bin/fairlift"

mkdir -p "$root/man" "$root/usr/share/man"
"$program" man "$root/man"
for page in "$root"/man/*; do
  section=${page##*.}
  install -D -m 644 "$page" "$root/usr/share/man/man$section/${page##*/}"
done
rm -r "$root/man"
gzip -9n "$root"/usr/share/man/man*/*

complete() { mkdir -p "$root/$2"; "$program" completions "$1" >"$root/$2/$3"; }
complete bash usr/share/bash-completion/completions fairlift
complete zsh usr/share/zsh/vendor-completions _fairlift
complete fish usr/share/fish/vendor_completions.d fairlift.fish

for unit in fairlift.service fairlift@.service fairlift-ublk.service fairlift.socket; do
  install -D -m 644 "cli/systemd/$unit" "$root/lib/systemd/system/$unit"
done
install -D -m 644 cli/systemd/fairlift.sysusers "$root/usr/lib/sysusers.d/fairlift.conf"
install -D -m 644 cli/systemd/fairlift.tmpfiles "$root/usr/lib/tmpfiles.d/fairlift.conf"
install -D -m 644 packaging/fairlift.toml "$root/etc/fairlift/fairlift.toml"
install -D -m 644 packaging/debian/copyright "$doc/copyright"
install -D -m 644 packaging/debian/lintian-overrides "$root/usr/share/lintian/overrides/fairlift"
mkdir -p "$doc/examples/iostest"
install -m 644 docs/examples/*.toml "$doc/examples/iostest/" # workloads and trees of groups, not configs
"$program" config >"$doc/examples/all-keys.toml"
gzip -9n <CHANGELOG.md >"$doc/changelog.gz"
gzip -9n >"$doc/changelog.Debian.gz" <<END
fairlift ($version) unstable; urgency=medium

  * What is new: changelog.gz.

 -- $maintainer  $(date -uR -r CHANGELOG.md)
END

mkdir "$root/DEBIAN"
install -m 755 packaging/debian/{postinst,prerm,postrm} "$root/DEBIAN/"
echo /etc/fairlift/fairlift.toml >"$root/DEBIAN/conffiles"
(cd "$root" && find usr lib -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
# What the program was linked to says which C library it needs, at least.
libc=$(objdump -T "$root/usr/bin/fairlift" | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -1 | cut -d_ -f2)
cat >"$root/DEBIAN/control" <<END
Package: fairlift
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Section: admin
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Depends: libc6 (>= ${libc:-2.31}), libgcc-s1 (>= 4.2)
Recommends: systemd, procps
Suggests: nbd-client, qemu-utils
Description: fair block devices over NBD for many tenants
 Fairlift serves files and block devices over NBD and to virtual machines,
 and divides a disk among its tenants by weight: a tenant with three times
 the weight has three times the share whenever the disk is busy, whatever
 the others do, flushes included.
 .
 The package has the server and its tools (status, top, why, iostest,
 iostune), units for systemd, and a configuration file to begin with.
END
mkdir -p "$out"
package=$out/fairlift_${version}_$architecture.deb
dpkg-deb --root-owner-group "-Z${COMPRESS:-xz}" --build "$root" "$package" >/dev/null
echo "$package"
