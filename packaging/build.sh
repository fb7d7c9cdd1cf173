#!/usr/bin/env bash
# Makes the Debian package, prefixfs_VERSION_ARCH.deb.
#
#   packaging/build.sh [--out DIR] [--build DIR] [--no-build]
#
#   --out DIR    where the package goes; build/ of this tree if absent
#   --build DIR  the build to take it from; build/release, of the preset `release`, if absent
#   --no-build   takes the programs there as they are
#
# What it needs is installed by `packaging/install-deps.sh --package`. Depends is computed from the libraries that the
# programs are linked with, so the package is for the release of Debian that it is built on. The manual pages and the
# example configuration are made from what the programs themselves print with --help. DEBFULLNAME and DEBEMAIL say who
# the maintainer is.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
readonly top
readonly debian=$top/packaging/debian man=$top/packaging/man
out=$top/build
build=$top/build/release
compile=yes

die() {
  printf 'build.sh: %s\n' "$*" >&2
  exit 1
}
usage() { sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0"; }

while [ $# -gt 0 ]; do
  case $1 in
    --out) out=${2:?--out needs a directory} && shift ;;
    --build) build=${2:?--build needs a directory} && shift ;;
    --no-build) compile=no ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) die "unknown argument $1; see --help" ;;
  esac
  shift
done
mkdir -p "$out"
out=$(realpath "$out")
build=$(realpath -m "$build")
readonly out build compile

for tool in cmake help2man dpkg-shlibdeps dpkg-deb gzip; do
  command -v "$tool" >/dev/null || die "$tool is missing: packaging/install-deps.sh --package installs it"
done

# Two builds of one commit are the same package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022

compile_programs() {
  [ "$build" != "$top/build/release" ] || [ -e "$build/CMakeCache.txt" ] || (cd "$top" && cmake --preset release >/dev/null)
  cmake --build "$build" --target prefixfs prefixfsd
}

# manual SECTION PAGE PROGRAM DESCRIPTION [SUBCOMMAND]: one page from --help, with what packaging/man adds to it. The
# lines of an example stay lines.
manual() {
  local section=$1 page=$2 program=$3 description=$4 file
  file=$root/usr/share/man/man$section/$page.$section
  mkdir -p "$(dirname "$file")"
  help2man --no-info --section "$section" --name "$description" --version-string "$page $version" \
    --include "${man_extra[$page]:-$man/see-also.h2m}" "$program${5:+ $5}" >"$file" || die "no manual page of $page"
  sed -i -e '/^\.SH EXAMPLES/,/^\.PP/{' -e 's/^\.IP$/&\n.nf/' -e 's/^\.PP$/.fi\n&/' -e '}' "$file"
  gzip -9n "$file"
}

# The subcommands and what they do, as `prefixfs --help` lists them: NAME, a tab, TEXT.
subcommands() {
  "$root/usr/bin/prefixfs" --help | awk '/^$/ { listed = 0 } listed { name = $1; $1 = ""; print name "\t" tolower(substr($0, 2, 1)) substr($0, 3) }
    /^Subcommands:/ { listed = 1 }'
}

install_manuals() {
  local name text file
  declare -A man_extra=()
  for file in "$man"/*.h2m; do man_extra[$(basename "$file" .h2m)]=$file; done
  manual 1 prefixfs "$root/usr/bin/prefixfs" "filesystem for the KV cache of LLM inference"
  while IFS=$'\t' read -r name text; do
    manual 8 "prefixfs-$name" "$root/usr/bin/prefixfs" "$text" "$name"
  done < <(subcommands)
  manual 8 mount.prefixfs "$root/usr/sbin/mount.prefixfs" "mount PrefixFS, as mount(8) and fstab(5) do"
  manual 8 prefixfsd "$root/usr/sbin/prefixfsd" "daemon behind a mount of PrefixFS"
}

# Every key of the configuration as a comment, from the list that `prefixfs mount --help` ends with.
example_configuration() {
  cat <<'EOF'
# A mount of PrefixFS. The drives are the one thing that has to be named; every other key stands here with its
# default. prefixfs-mount(8) and CONFIGURATION.md in /usr/share/doc/prefixfs/docs tell more.
#
# With `nvme` set, `systemctl enable --now prefixfs@prefixfs` mounts this file on /mnt/prefixfs. For another mount,
# copy it to /etc/prefixfs/NAME.toml: prefixfs@NAME mounts that on /mnt/NAME.

EOF
  "$root/usr/bin/prefixfs" mount --help | sed -n '/^Configuration keys/,/^Sizes take/p' |
    sed -n -E -e 's/^  ([a-z_]+) = ("[^"]*"|\[\]|[0-9.]+) +(.*)$/# \3\n#\1 = \2\n/p' \
      -e 's/^  ([a-z_]+)  +(.*)$/# \1: \2\n/p'
}

install_docs() {
  local doc=$root/usr/share/doc/prefixfs package
  install -d "$doc/docs" "$doc/notices"
  install -m 644 "$debian/copyright" "$top/README.md" "$doc"
  install -m 644 "$top"/docs/* "$doc/docs"
  for package in libcli11-dev nlohmann-json3-dev libtomlplusplus-dev; do
    install -m 644 "/usr/share/doc/$package/copyright" "$doc/notices/$package"
  done
  printf 'prefixfs (%s) unstable; urgency=medium\n\n  * See README.md and the history of the source.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$(date -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$doc/changelog.gz"
}

# What `apt` has to install with it.
dependencies() {
  printf 'Source: prefixfs\n\nPackage: prefixfs\nArchitecture: any\n' >"$work/debian/control"
  (cd "$work" && dpkg-shlibdeps -O "$root/usr/bin/prefixfs" "$root/usr/sbin/prefixfsd") |
    sed -n 's/^shlibs:Depends=//p'
}

write_control() {
  local depends size
  install -d "$root/DEBIAN"
  depends=$(dependencies)
  [ -n "$depends" ] || die "dpkg-shlibdeps found no libraries"
  size=$(du -sk --apparent-size "$root" | cut -f 1)
  sed -e "s/@VERSION@/$version/" -e "s/@ARCH@/$arch/" -e "s/@MAINTAINER@/$maintainer/" -e "s/@SIZE@/$size/" \
    -e "s/@DEPENDS@/$depends/" "$debian/control.in" >"$root/DEBIAN/control"
  install -m 755 "$debian"/{postinst,prerm,postrm} "$root/DEBIAN"
  echo /etc/prefixfs/prefixfs.toml >"$root/DEBIAN/conffiles"
  (cd "$root" && find usr lib -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
}

[ "$compile" = no ] || compile_programs
[ -x "$build/tools/prefixfsd" ] || die "$build holds no prefixfsd: build it first, or leave --no-build out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/debian/prefixfs # where dpkg-shlibdeps expects a package
version=$("$build/tools/prefixfs" --version | awk '{ print $2 }')
arch=$(dpkg --print-architecture)
maintainer="${DEBFULLNAME:-PrefixFS maintainers} <${DEBEMAIL:-maintainers@prefixfs.example}>"
readonly work root version arch maintainer

DESTDIR=$root cmake --install "$build" --prefix /usr --strip >/dev/null
install -D -m 644 "$debian/prefixfs@.service" "$root/lib/systemd/system/prefixfs@.service"
install -d "$root/etc/prefixfs"
example_configuration >"$root/etc/prefixfs/prefixfs.toml"
install_manuals
install_docs
write_control
dpkg-deb --root-owner-group -Zxz --build "$root" "$out/prefixfs_${version}_$arch.deb" >/dev/null
echo "$out/prefixfs_${version}_$arch.deb"
