say() { echo "@PACKAGE@: $*" >&2; }
# Whether the service's program is a process of this root: /proc may be that of the host outside.
runs() {
  for process in $(grep -lszx "/usr/bin/[v]${1#v}" /proc/[0-9]*/cmdline); do
    process=${process%/cmdline}
    [ "$process/root" -ef / ] && grep -qszx "${2:-.*}" "$process/cmdline" && return 0
  done
  return 1
}
# The service of @PACKAGE@, what its process is called with, and the folders of its bytecode.
unit=@PACKAGE@.service program=@PACKAGE@ python=/usr/lib/vcuda/python
case @PACKAGE@ in
  vcuda-runtime) unit=vcuda.service program='vcuda serve' folders=$python ;;
  vcuda-node-agent) folders=$python/vcuda_plugin/agent ;;
  vcuda-scheduler-extender)
    folders="$python/vcuda_plugin/extender $python/vcuda_plugin/simulate" ;;
esac
