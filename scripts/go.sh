# shellcheck shell=bash
# Sourced by the other scripts: makes sure that git, make and a Go as new as go.mod
# asks for are there, and puts that Go on PATH. On a machine without them it installs Debian's packages; Debian's Go may
# be too old to build this and then only fetches the right toolchain, as the Go
# module that it is published as.

root=$(cd "$(dirname "${BASH_SOURCE[0]:-scripts/go.sh}")/.." && pwd)
go_wanted=$(sed -n 's/^go //p' "$root/go.mod")
go_toolchain=go1.26.8

say() { printf '%s\n' "$*" >&2; }

apt_install() {
	local sudo=
	[ "$(id -u)" = 0 ] || sudo=sudo
	say "installing $* with apt-get"
	$sudo apt-get update -qq >&2
	DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "$@" >&2
}

# go_is_new_enough GO: whether that go command can build this.
go_is_new_enough() {
	local have
	have=$(cd "$root" && GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null) || return 1
	[ "$(printf '%s\n' "$go_wanted" "${have#go}" | sort -V | head -n 1)" = "$go_wanted" ]
}

fetch_toolchain() {
	local arch dir module
	case $(uname -m) in
	x86_64) arch=amd64 ;;
	aarch64) arch=arm64 ;;
	*) say "no Go toolchain is known for $(uname -m): install Go $go_wanted or newer"; return 1 ;;
	esac
	dir="$root/.cache/$go_toolchain"
	if [ ! -x "$dir/bin/go" ]; then
		say "fetching $go_toolchain (about 60 MB)"
		module="golang.org/toolchain@v0.0.1-$go_toolchain.linux-$arch"
		local tmp answer src
		tmp=$(mktemp -d) # outside the checkout, whose go.mod an old go cannot read
		answer=$(cd "$tmp" && printf 'module bootstrap\n' >go.mod && GOTOOLCHAIN=local GOFLAGS=-mod=mod go mod download -json "$module") || {
			say "$answer"
			say "install Go $go_wanted or newer, or see to it that the go command can download modules"
			return 1
		}
		rm -rf "$tmp"
		src=$(sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p' <<<"$answer")
		mkdir -p "$root/.cache"
		rm -rf "$dir.part"
		cp -r "$src" "$dir.part"
		chmod -R u+w "$dir.part"
		chmod +x "$dir.part"/bin/* "$dir.part"/pkg/tool/*/*
		mv "$dir.part" "$dir"
	fi
	export GOROOT="$dir" PATH="$dir/bin:$PATH"
}

ensure_go() {
	if command -v go >/dev/null && go_is_new_enough go; then
		return
	fi
	if [ ! -x "$root/.cache/$go_toolchain/bin/go" ]; then
		command -v go >/dev/null || apt_install golang-go ca-certificates
		if go_is_new_enough go; then
			return
		fi
	fi
	fetch_toolchain
}

# For programs of the demo: without inlining and debugging symbols, compiling takes two thirds of the time. test/cluster is built with the same.
quick='-gcflags=all=-l -dwarf=false'

# counting TEXT TOTAL PATTERN: reads the output of a go command, and says every ten seconds how many of its lines match; others are shown.
counting() {
	local line n=0 said=$SECONDS
	while IFS= read -r line; do
		[[ $line =~ $3 ]] || { say "$line"; continue; }
		n=$((n + 1))
		[ $((SECONDS - said)) -ge 10 ] || continue
		said=$SECONDS
		say "$1: $n of $2"
	done
}

# go_compile NAME DIRECTORY PACKAGE [FLAG]: downloads and compiles what a program is made of, without linking it, and says how far it is.
# The compiler collects no garbage below 1.5 GiB: a tenth of the time.
go_compile() {
	local stale
	stale=$(go -C "$2" list "${@:4}" -deps -f '{{if .Stale}}{{.Standard}} {{.ImportPath}}{{end}}' "$3" \
		2> >(counting "downloading modules of $1" "at most $(grep -vc '/go\.mod ' "$2/go.sum")" '^go: downloading ')) || return
	mapfile -t packages < <(sed -n 's/^false //p' <<<"$stale")
	[ ${#packages[@]} -eq 0 ] || GOGC=off GOMEMLIMIT=1536MiB go -C "$2" build -o /dev/null "${@:4}" -v "${packages[@]}" 2>&1 |
		counting "compiling packages of $1" "$(grep -c . <<<"$stale")" '^[a-z0-9.-]+(/[^[:space:]]*)?$'
}

command -v git >/dev/null || apt_install git ca-certificates
command -v make >/dev/null || apt_install make
ensure_go
export GOTOOLCHAIN=local
# All programs are built without cgo, as releases and the image are: compiled packages are shared only between builds with the same flags.
export CGO_ENABLED=${CGO_ENABLED-0}
