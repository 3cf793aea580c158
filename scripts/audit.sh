#!/usr/bin/env bash
# The long forms of TestNoWrongUser, one after the other: WRITES=100000 requests of 50 users, and the bridge killed KILLS=20 times; with the
# webhook of one API server and of two, with complete records, with the log file, and with lost records. Then what a storm of reads costs.
# What each one counted is in var/audit, and in test/results if nothing was set. FORMS="complete dropped reads" runs some of the forms.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/go.sh
say "API server: $(scripts/cluster.sh)"
say "Kafka: $(scripts/kafka.sh)"
mkdir -p var/audit
commit=$(scripts/results.sh begin)
results=var/audit/results.txt
: >"$results"
failed=0
# form NAME TEST FLAG...: one form.
form() {
	local log=var/audit/$1.log
	say "== $1, the log is $log"
	go -C test/e2e test -count=1 -v -timeout 6h -run "$2" . "${@:3}" >"$log" 2>&1 || failed=1
	{
		echo "== $1"
		grep -E '^ *audit[a-z]*_test.go|^(---|ok|FAIL)' "$log" | cut -c1-300
	} | tee -a "$results"
}
say "commit $commit"
for one in ${FORMS:-batch two complete complete-two file complete-file dropped dropped-file reads}; do
	if [[ $one = reads ]]; then
		form reads TestReadsCostLittle -audit.reads="${READS:-30s}"
	else
		form "$one" TestNoWrongUser -audit.forms="$one" -audit.writes="${WRITES:-100000}" -audit.kills="${KILLS:-20}" -audit.seed="${SEED:-1}"
	fi
done
[ -n "${WRITES-}${KILLS-}${SEED-}${READS-}${FORMS-}" ] || scripts/results.sh record audit "$commit" $failed <"$results"
exit $failed
