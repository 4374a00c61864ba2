#!/bin/sh
# Before the files of @PACKAGE@ go. dpkg says "remove", rpm that no version will be left: 0. On the
# way to another version nothing is stopped. Nothing here fails the removal: what stays is told.
case "$1" in
  remove | 0) ;;
  *) exit 0 ;;
esac

@SHARED@
if [ @PACKAGE@ = vcuda-runtime ]; then
  told=$(ls /etc/vcuda/configured/*.json 2>/dev/null)
  records=$(ls /run/vcuda/allocations/*.json 2>/dev/null)
  # Containers that run were started by the runtime at this path, and their engines stop and delete
  # them by it. It passes all of that on by itself, so it is put back when the package is gone. Where
  # it is gone already, a removal that was killed has put it by.
  runtime=/usr/bin/vcuda-container-runtime
  if [ "$told$records" ] && { [ -e $runtime ] || [ ! -e /etc/vcuda/.left-behind ]; }; then
    cp -p $runtime /etc/vcuda/.left-behind ||
      say "/usr/bin/vcuda-container-runtime: goes, though containers may need it to be stopped;" \
        "make room, and install it again"
  fi
  if [ "$told" ]; then
    timeout 60 vcuda configure all --undo ||
      say "engines' files: what was just told stays; remove vcuda's entries by hand"
  fi
fi

if [ -d /run/systemd/system ]; then
  systemctl disable --now "$unit" ||
    say "$unit: runs on; stop it with 'systemctl stop $unit'"
elif runs $program; then
  say "$program: runs on, since no systemd runs here; stop it by what started it"
fi
find $folders -name __pycache__ -prune -exec rm -rf {} +
exit 0
