say() { echo "@PACKAGE@: $*" >&2; }
# Whether the service's program is a process of this root: /proc may be that of the host outside.
runs() {
  for process in $(grep -lszx "/usr/bin/[v]${1#v}" /proc/[0-9]*/cmdline); do
    process=${process%/cmdline}
    [ "$process/root" -ef / ] && grep -qszx "${2:-.*}" "$process/cmdline" && return 0
  done
  return 1
}
# The service of @PACKAGE@, what its process is called with, and whose bytecode it brought.
unit=@PACKAGE@.service program=@PACKAGE@ folder=/usr/lib/vcuda/python/vcuda_plugin
case @PACKAGE@ in
  vcuda-runtime) unit=vcuda.service program='vcuda serve' folder=/usr/lib/vcuda/python ;;
  vcuda-scheduler-extender) folder=$folder/scheduler ;;
esac
