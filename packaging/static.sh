#!/usr/bin/env bash
# Builds a program that needs no library of the machine it runs on, and packs it: target/package/fairlift-VERSION-x86_64-linux.tar.gz
#
# Needs the target (rustup target add x86_64-unknown-linux-musl) and a C compiler for it (Debian: musl-tools), because `ring`
# has parts in C. PROFILE=dev builds it without optimising, to try it.
set -euo pipefail
cd "$(dirname "$0")/.."
target=x86_64-unknown-linux-musl
profile=${PROFILE:-release}
command -v musl-gcc >/dev/null || { echo "musl-gcc is missing (Debian: apt-get install musl-tools)"; exit 1; }
rustup target list --installed | grep -qx $target || rustup target add $target
plain=()
[ "$profile" != dev ] || for package in fairlift-core fairlift-lab; do plain+=(--config "profile.dev.package.$package.opt-level=0"); done
CC_x86_64_unknown_linux_musl=musl-gcc cargo build --locked --profile "$profile" "${plain[@]}" --target $target -p fairlift-cli
program=${CARGO_TARGET_DIR:-target}/$target/${profile/#dev/debug}/fairlift
ldd "$program" 2>&1 | grep -q "statically linked\|not a dynamic" || { echo "it is not static"; exit 1; }
version=$("$program" --version | cut -d' ' -f2)
name=fairlift-$version-x86_64-linux
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/$name"/{man,completions,examples/iostest,systemd} target/package
install -m 755 -s "$program" "$tree/$name/fairlift"
"$program" man "$tree/$name/man"
for shell in bash zsh fish; do "$program" completions $shell >"$tree/$name/completions/fairlift.$shell"; done
cp docs/examples/*.toml "$tree/$name/examples/iostest/"
cp packaging/fairlift.toml "$tree/$name/examples/"
cp cli/systemd/* "$tree/$name/systemd/"
cp README.md CHANGELOG.md LICENSE-* "$tree/$name/"
tar --sort=name --owner=0 --group=0 --numeric-owner -C "$tree" -czf "target/package/$name.tar.gz" "$name"
echo "target/package/$name.tar.gz"
