# Functions about shared libraries for the scripts of this folder, which source it.
# shellcheck shell=bash

# Returns whether a library is of the C library's own package, which goes with the system's loader.
is_system() {
  case ${1##*/} in
    ld-linux* | libc.so* | libm.so* | libmvec.so* | libpthread.so* | libdl.so* | librt.so* | libresolv.so* | libutil.so* | libanl.so* | libnss_*) return 0 ;;
  esac
  return 1
}
# wanted_by PROGRAM…: prints the paths of the libraries that the programs load, one per line.
wanted_by() { ldd "$@" | sed -nE 's/.* => (\/.*) \(0x.*/\1/p; s/^[[:space:]]*(\/.*ld-linux.*) \(0x.*/\1/p' | sort -u; }
