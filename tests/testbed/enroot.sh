#!/bin/bash
# enroot list, enroot remove [-f] NAME...: the part of enroot that users of Pyxis need, for the containers of pyxis.c.
# Only named containers are listed; the real enroot lists the others too, while their step runs.
set -euo pipefail
folder=/run/pyxis/$(hostname)/$UID
case ${1-} in
  list) [[ ! -d $folder ]] || ls "$folder" ;;
  remove)
    shift
    [[ ${1-} != -f ]] || shift
    for name; do
      [[ -e $folder/$name ]] || {
        echo "[ERROR] No such file or directory: $folder/$name" >&2
        exit 1
      }
      rm -f "$folder/$name"
    done
    ;;
  *)
    echo "the testbed's enroot supports only list and remove" >&2
    exit 1
    ;;
esac
