#!/usr/bin/env bash
# What got worse since docs/measured/peers.md was written, by more than chance. Exits with 1 if something did.
#
#   benches/compare.sh                  instructions in the core, then beside the peers: about 15 minutes, nothing else on the machine
#   benches/compare.sh instructions     only these: they are the same on every run, on a busy machine too
#   benches/compare.sh peers [ARG ...]  only beside the peers; ARG as for benches/peers/compare.sh
#   benches/compare.sh FILE.md          tables that were measured before
set -euo pipefail
cd "$(dirname "$0")/.."
tables=$(mktemp) what=${1:-all}
trap 'rm -f "$tables"' EXIT
case $what in
  all | instructions | peers) ;;
  *.md) cp "$what" "$tables" ;;
  *) sed -n 2,7p "$0" | sed 's/^# \{0,1\}//'; exit 2 ;;
esac
if [ "$what" = all ] || [ "$what" = instructions ]; then
  STREAMS=64 GROUPS_=8 benches/instructions.sh none mq-deadline fair | tee -a "$tables"
fi
if [ "$what" = all ] || [ "$what" = peers ]; then
  benches/peers/compare.sh "${@:2}" | tee -a "$tables"
fi
python3 benches/worse.py docs/measured/peers.md "$tables"
