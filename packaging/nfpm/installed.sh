#!/bin/sh
# After the files of @PACKAGE@ are there. dpkg says "configure", rpm how many versions there are.
# Nothing here fails the installation: it reports what was not done; installing again does it.
case "$1" in
  configure | 1 | 2) ;;
  *) exit 0 ;;
esac

@SHARED@
# A bare root has no mountpoint(1), nor /proc.
has_its_own_file_system() {
  [ -r /proc/mounts ] || return 1
  while read -r _ at _; do
    [ "$at" != "$1" ] || return 0
  done </proc/mounts
  return 1
}
# Left by a removal that did not finish.
[ @PACKAGE@ != vcuda-runtime ] || rm -f /etc/vcuda/.left-behind

# Both hold their source's time: bytecode of another version is never believed.
{ /usr/bin/python3 -I -m compileall -qq --invalidation-mode timestamp $folders &&
  { [ @PACKAGE@ != vcuda-runtime ] || /usr/bin/python3 -I -S "$python/vcuda_oci/packed.py" 2>/dev/null; }; } ||
  say "$folders: not compiled, so each start takes longer; make room, and install it again"

# A CDI specification names the shim by its content; the former version's shim was removed.
if [ @PACKAGE@ = vcuda-runtime ]; then
  for spec in /var/run/cdi/vcuda.json /var/run/cdi/vcuda-*.json; do
    [ ! -e "$spec" ] || timeout 60 vcuda cdi generate --output "$spec" >/dev/null ||
      say "$spec: still names the shim of the former version; correct the error above, and run 'vcuda cdi generate --output $spec'"
  done
fi

if [ -d /run/systemd/system ]; then
  systemctl daemon-reload && systemctl try-restart "$unit" ||
    say "$unit: still as it was before; look at 'systemctl status $unit'"
  # Nothing happens where records are there already: the next boot mounts it.
  [ @PACKAGE@ != vcuda-runtime ] || systemctl start run-vcuda.mount ||
    say "/run/vcuda: shares the file system of /run; look at 'systemctl status run-vcuda.mount'"
else
  ! runs $program || say "$program: goes on with the code that it began with, since no systemd runs here; start it anew"
  [ @PACKAGE@ != vcuda-runtime ] || has_its_own_file_system /run/vcuda ||
    say "/run/vcuda: shares the file system of /run, since no systemd runs here; give it a tmpfs of its own"
fi
exit 0
