#!/bin/bash
# enroot list, enroot remove [-f] NAME...: what users of Pyxis need of enroot, for the containers of pyxis.c.
# It knows those with a name only; the real one has the others too, while their step runs.
set -euo pipefail
folder=/run/pyxis/$(hostname)/$UID
case ${1-} in
    list) [[ ! -d $folder ]] || ls "$folder" ;;
    remove)
        shift
        [[ ${1-} != -f ]] || shift
        for name; do
            [[ -e $folder/$name ]] || { echo "[ERROR] No such file or directory: $folder/$name" >&2; exit 1; }
            rm -f "$folder/$name"
        done
        ;;
    *) echo "this enroot of the testbed can list and remove only" >&2; exit 1 ;;
esac
