# Paths and helpers of these scripts; every variable here can be set in the environment.
# shellcheck shell=bash disable=SC2034
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
: "${W:=${TMPDIR:-/tmp}/fairlift-peers}"          # all that these scripts write is below this
: "${RAM:=$W/ram/ram.img}" "${RAM_MIB:=1024}"     # backing on tmpfs
: "${DISK:=$W/disk/disk.img}" "${DISK_MIB:=4096}" # backing on a real disk: set W or DISK if /tmp is none
: "${PORT:=10910}"                                # loopback port, where TCP is asked for
: "${FAIRLIFT:=${CARGO_TARGET_DIR:-$ROOT/target}/release/fairlift}"
RUN=$W/run LOGS=$W/logs RESULTS=$W/results NBDLOAD=$W/bin/nbdload

say() { echo "$(date +%T) $*" >&2; }
die() { echo "$(basename "$0"): $*" >&2; exit 1; }
seed() { echo $((RANDOM * 32768 + RANDOM + 1)); }

# Directories with a mark, so that `clean` deletes only what these scripts made.
workdir() {
  [ -d "$W" ] || { mkdir -p "$W" && chmod 700 "$W"; } || exit 1
  [ -O "$W" ] || die "$W belongs to someone else; set W"
  mkdir -p "$RUN" "$LOGS" "$RESULTS" "$W/bin" "$W/ram" "$W/disk" && touch "$W/.fairlift-peers" || exit 1
  [ ${#RUN} -le 60 ] || die "unix socket paths end at 107 bytes: $RUN is too long; set W to a shorter path"
}

need() { # need COMMAND=PACKAGE...: one line for all that is missing
  local p miss=
  for p in "$@"; do command -v "${p%=*}" >/dev/null || miss+=" ${p#*=}"; done
  [ -z "$miss" ] || die "missing:$miss (Debian: apt-get install$miss)"
}

need_peers() {
  need cc=gcc make=make jq=jq bc=bc openssl=openssl python3=python3 flock=util-linux nbdkit=nbdkit \
    qemu-nbd=qemu-utils qemu-storage-daemon=qemu-system-common nbd-server=nbd-server nbdinfo=libnbd-bin
}

build_load() { make -s -C "$HERE" OUT="$W/bin" || die "the load generator did not build"; }

build_fairlift() { # unless FAIRLIFT names a binary elsewhere, the release build of this tree
  if [ "$FAIRLIFT" = "${CARGO_TARGET_DIR:-$ROOT/target}/release/fairlift" ]; then
    say "building $FAIRLIFT"
    (cd "$ROOT" && cargo build --quiet --release --bin fairlift) || die "cargo build --release failed"
  fi
  [ -x "$FAIRLIFT" ] || die "no executable $FAIRLIFT (without it: --peers-only)"
}

one_at_a_time() { # two comparisons at once would measure each other; servers must not inherit the lock
  exec 9>"$W/lock"
  flock -n 9 || { say "waiting for another run below $W"; flock 9; }
}

stop_all() { # every server that server.sh started below W and that still runs (only one run at a time: see above)
  local f pid
  for f in "$RUN"/*.pid; do
    pid=$(cat "$f" 2>/dev/null)
    if [ -n "$pid" ] && { tr '\0' '\n' <"/proc/$pid/environ" | grep -qxF "FAIRLIFT_PEERS=$RUN"; } 2>/dev/null; then
      "$HERE/server.sh" stop "$pid"
    fi
  done
  rm -f "$RUN"/*
}

mount_of() { findmnt -no "$1" -T "$(dirname "$2")" 2>/dev/null | tail -1 | tr -s ' '; } # the topmost of stacked mounts

block_device() { # the disk under DISK, as named in /sys/block; empty if there is none
  local d; d=$(basename "$(mount_of SOURCE "$DISK")")
  [ -e "/sys/block/$d/stat" ] || d=$(lsblk -no PKNAME "/dev/$d" 2>/dev/null | head -1)
  [ -n "$d" ] && [ -e "/sys/block/$d/stat" ] && echo "$d"
}

machine() { # Markdown: where and with what these figures were made
  local commit dirty=
  commit=$(git -C "$ROOT" log -1 --format='%h %s' 2>/dev/null || echo unknown)
  [ -z "$(git -C "$ROOT" status --porcelain -- . ':!docs' 2>/dev/null | head -1)" ] || dirty=' + uncommitted changes'
  echo "* Date: $(date -u '+%Y-%m-%d %H:%M UTC'). Commit: $commit$dirty."
  echo "* Machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, $(awk '/MemTotal/{printf "%.0f GiB", $2 / 1048576}' /proc/meminfo), $(systemd-detect-virt 2>/dev/null || true) Linux $(uname -r) $(uname -m)."
  echo "* Disk: $(mount_of SOURCE,FSTYPE "$DISK"), scheduler $(cat "/sys/block/$(block_device)/queue/scheduler" 2>/dev/null || echo '?'), write cache: $(cat "/sys/block/$(block_device)/queue/write_cache" 2>/dev/null || echo '?'). RAM file: $(mount_of FSTYPE "$RAM")."
  local peers
  peers="nbdkit $(nbdkit --version | cut -d' ' -f2), qemu-nbd $(qemu-nbd --version | sed -n '1s/qemu-nbd \([^ ]*\).*/\1/p'), qemu-storage-daemon $(qemu-storage-daemon --version | sed -n '1s/.*version \([^ ]*\).*/\1/p'), nbd-server $(nbd-server --version 2>&1 | sed -n '1s/.*version \([0-9.]*\).*/\1/p')"
  echo "* Versions: $([ -x "$FAIRLIFT" ] && "$FAIRLIFT" --version 2>/dev/null | head -1 | sed 's/$/, /')$peers; $(rustc --version 2>/dev/null | cut -d' ' -f1,2), $(cc --version | head -1)."
}
