#!/usr/bin/env bash
# The long forms of TestOutage, one after the other: Apache Kafka away for OUTAGE=10m, with WRITES=50000 writes, and the bridge killed
# KILLS=20 times; with a disk buffer and without, and each also with RESTARTS=3 restarts of the API server, or of one of two. What each one counted is
# in var/outage, and in test/results if nothing was set. FORMS="buffer no-buffer" runs some of the forms.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
say "API server: $(scripts/cluster.sh)"
say "Kafka: $(scripts/kafka.sh)"
mkdir -p var/outage
commit=$(scripts/results.sh begin)
results=var/outage/results.txt
: >"$results"
failed=0
# form NAME FLAG...: one form.
form() {
	local log=var/outage/$1.log
	say "== $1, the log is $log"
	go -C test/e2e test -count=1 -v -timeout 3h -run TestOutage . -outage.for="${OUTAGE:-10m}" -outage.writes="${WRITES:-50000}" -outage.kills="${KILLS:-20}" "${@:2}" >"$log" 2>&1 || failed=1
	{
		echo "== $1"
		grep -E '^    outage_test.go|^(---|ok|FAIL)' "$log" | cut -c1-300
	} | tee -a "$results"
}
for one in ${FORMS:-buffer buffer-restarts buffer-restarts-of-two no-buffer no-buffer-restarts}; do
	flags=()
	[[ $one != no-buffer* ]] || flags+=(-outage.buffer=false)
	[[ $one != *-restarts* ]] || flags+=(-outage.restarts="${RESTARTS:-3}")
	[[ $one != *-of-two ]] || flags+=(-outage.servers=2)
	form "$one" "${flags[@]}"
done
[ -n "${OUTAGE-}${WRITES-}${KILLS-}${RESTARTS-}${FORMS-}" ] || scripts/results.sh record outage "$commit" $failed <"$results"
exit $failed
