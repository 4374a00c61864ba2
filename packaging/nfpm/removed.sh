#!/bin/sh
# After the files of @PACKAGE@ are gone. dpkg says "remove", and "purge" when the settings go too;
# rpm that no version is left: 0.
if [ @PACKAGE@ = vcuda-runtime ]; then
  case "$1" in
    remove | 0)
      runtime=/usr/bin/vcuda-container-runtime
      if [ -e /etc/vcuda/.left-behind ]; then
        mv -f /etc/vcuda/.left-behind $runtime && echo "vcuda-runtime: $runtime: stays, since" \
          "engines end their containers by it; remove it when those are gone" >&2
      fi
      rmdir /etc/vcuda 2>/dev/null
      ;;
    purge)
      rm -rf /etc/vcuda
      # Its hooks were removed: a container that asks for a device of these could not start.
      rm -f /var/run/cdi/vcuda.json /var/run/cdi/vcuda-*.json /var/run/cdi/vcuda.io-claim_*.json
      # A later installation learns by the records what running containers hold.
      for record in /run/vcuda/allocations/*.json; do
        [ ! -e "$record" ] || exit 0
      done
      ! mountpoint -q /run/vcuda || umount /run/vcuda
      rm -rf /run/vcuda
      ;;
  esac
fi
# The certificates that its unit made. kube-scheduler's configuration names them.
if [ @PACKAGE@ = vcuda-scheduler-extender ] && [ "$1" = purge ]; then
  rm -rf /var/lib/vcuda-scheduler-extender /var/lib/private/vcuda-scheduler-extender
fi
case "$1" in
  remove | 0) [ ! -d /run/systemd/system ] || systemctl daemon-reload ;;
esac
exit 0
