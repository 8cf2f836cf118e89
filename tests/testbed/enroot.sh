#!/bin/bash
# enroot list, enroot remove [-f] NAME...: what users of Pyxis need of enroot, for the containers of pyxis.c. A container
# without a name, as the real one has it while its step runs, is not in the list.
set -euo pipefail
cd "/run/pyxis/$(hostname)/$UID" 2>/dev/null || cd "$(mktemp -d)" # no container yet
case ${1-} in
    list) ls ;;
    remove)
        shift
        [[ ${1-} != -f ]] || shift
        for name; do
            [[ -e $name ]] || { echo "[ERROR] No such file or directory: $PWD/$name" >&2; exit 1; }
            rm -f "$name"
        done
        ;;
    *) echo "this enroot of the testbed can list and remove only" >&2; exit 1 ;;
esac
