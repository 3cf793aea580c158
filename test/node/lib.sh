# shellcheck shell=bash
# Sourced by the scripts of this test.

step_began=$SECONDS
# step prints what has been done, at what time, and how many seconds it took since the step before.
step() {
	printf '%s %4d s  %s\n' "$(date -u +%T)" $((SECONDS - step_began)) "$*"
	step_began=$SECONDS
}

# eventually SECONDS COMMAND...: repeats a command until it succeeds.
eventually() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || { echo "timeout, the command still fails: $*" >&2; return 1; }
		sleep 0.2
	done
}

# expect WHAT WANTED GOT: fails where the two differ.
expect() {
	[ "$2" = "$3" ] || { echo "$1: want \"$2\", got \"$3\"" >&2; return 1; }
}

# unpack DEBS ROOT PACKAGES...: what Debian's packages install. The packages are kept in DEBS.
unpack() {
	local debs=$1 root=$2 package
	shift 2
	mkdir -p "$debs"
	(cd "$debs" && apt-get download -qq "$@" 2>/dev/null) || { apt-get update -qq && (cd "$debs" && apt-get download -qq "$@" 2>/dev/null); }
	for package; do dpkg -x "$debs/$package"_*.deb "$root"; done
}
