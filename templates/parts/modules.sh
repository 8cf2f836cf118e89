# A batch shell is not a login shell: `module` may have to be defined first.
for init in "${LMOD_PKG:-/usr/share/lmod/lmod}/init/bash" "${MODULESHOME:-/usr/share/modules}/init/bash" \
  /etc/profile.d/lmod.sh /etc/profile.d/modules.sh; do
  # shellcheck disable=SC1090
  type module &>/dev/null || [[ ! -r $init ]] || source "$init"
done
