#!/bin/sh
# Before the files of vcuda-softgpu go. dpkg says "remove", rpm that no version will be left: 0.
case "$1" in
  remove | 0) ;;
  *) exit 0 ;;
esac
[ ! -d /run/systemd/system ] || systemctl disable --now vcuda-softgpu.service ||
  echo "vcuda-softgpu: vcuda-softgpu.service: not stopped; run 'systemctl stop vcuda-softgpu'" >&2
exit 0
