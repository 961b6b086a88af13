#!/bin/bash
# prepare.sh         makes the two backings, fully written with noise: RAM_MIB on tmpfs, DISK_MIB on the disk
# prepare.sh clean   stops leftover servers, unmounts, deletes everything below W (${TMPDIR:-/tmp}/fairlift-peers)
. "$(dirname "$0")/common.sh"

clean() {
  [ -e "$W/.fairlift-peers" ] || { echo "nothing to clean in $W"; return; }
  stop_all
  if mountpoint -q "$W/ram"; then umount "$W/ram" || die "cannot unmount $W/ram"; fi
  rm -rf --one-file-system "$W"
  echo "removed $W"
}

noise() { openssl enc -aes-128-ctr -nosalt -K "$(printf %032x "$1")" -iv 00000000000000000000000000000000 </dev/zero 2>/dev/null; }

room() { # room DIR MIB: what the backing needs and a little more
  local free; free=$(df --output=avail -BM "$1" | tail -1 | tr -dc 0-9)
  [ "$free" -gt $(($2 + 256)) ] || die "$1 has $free MiB free, the backing needs $2 MiB (set W, DISK_MIB or RAM_MIB)"
}

ram() {
  [ "$(stat -c %s "$RAM" 2>/dev/null)" = $((RAM_MIB * 1048576)) ] && return
  mkdir -p "$(dirname "$RAM")"
  if [ "$(mount_of FSTYPE "$RAM")" != tmpfs ]; then
    mount -t tmpfs -o "size=$((RAM_MIB + 64))m,mode=700" fairlift-peers "$W/ram" 2>/dev/null ||
      die "cannot mount a tmpfs on $W/ram (needs root); or give a file on an existing one: RAM=/dev/shm/fairlift-ram.img"
  fi
  say "writing $RAM, $RAM_MIB MiB"
  rm -f "$RAM"
  room "$(dirname "$RAM")" $((RAM_MIB - 256))
  noise 9 | dd of="$RAM" bs=1M count="$RAM_MIB" iflag=fullblock status=none || die "cannot write $RAM"
}

disk() {
  [ "$(stat -c %s "$DISK" 2>/dev/null)" = $((DISK_MIB * 1048576)) ] && return
  mkdir -p "$(dirname "$DISK")"
  [ "$(mount_of FSTYPE "$DISK")" != tmpfs ] || say "warning: $DISK is in RAM (tmpfs), not on a disk; set DISK"
  say "writing $DISK, $DISK_MIB MiB"
  rm -f "$DISK" "$DISK.part"
  room "$(dirname "$DISK")" "$DISK_MIB"
  fallocate -l "${DISK_MIB}M" "$DISK.part" || die "cannot allocate $DISK"
  noise 7 | dd of="$DISK.part" bs=1M count="$DISK_MIB" iflag=fullblock oflag=direct conv=notrunc status=none ||
    die "cannot write $DISK with O_DIRECT"
  sync "$DISK.part" && mv "$DISK.part" "$DISK" # complete or absent
}

case ${1:-} in
clean) clean ;;
'') workdir; need openssl=openssl findmnt=util-linux; ram; disk ;;
*) sed -n 2,3p "$0"; exit 2 ;;
esac
