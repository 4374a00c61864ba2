#!/bin/sh
# Before the files of @PACKAGE@ go. dpkg says "remove", rpm that no version will be left: 0. On the
# way to another version nothing is stopped. Nothing here fails the removal: it reports what stays.
case "$1" in
  remove | 0) ;;
  *) exit 0 ;;
esac

@SHARED@
if [ @PACKAGE@ = vcuda-runtime ]; then
  configured=$(ls /etc/vcuda/configured/*.json 2>/dev/null)
  records=$(ls /run/vcuda/allocations/*.json 2>/dev/null)
  # Engines stop and delete running containers by the runtime at this path. It does that without the
  # rest of the package, so removed.sh puts it back. Where it is missing, a removal that was killed has
  # saved it already.
  runtime=/usr/bin/vcuda-container-runtime
  if [ "$configured$records" ] && { [ -e $runtime ] || [ ! -e /etc/vcuda/.left-behind ]; }; then
    cp -p $runtime /etc/vcuda/.left-behind ||
      say "/usr/bin/vcuda-container-runtime: goes, though containers may need it to be stopped;" \
        "make room, and install it again"
  fi
  if [ "$configured" ]; then
    timeout 60 vcuda configure all --undo ||
      say "engines' files: not all of vcuda's entries were removed; remove the rest by hand"
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
