package serve

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// podStatuses are the states in which the API server's columns of a pod have rules of their own: the names of init containers (with "+" a
// sidecar) and of containers, and the status that a kubelet would report. A name that ends in "-deleted" is of a pod that is being deleted.
var podStatuses = []struct{ name, init, containers, status string }{
	{"pending", "", "a", `"phase":"Pending"`},
	{"evicted", "", "a", `"phase":"Failed","reason":"Evicted"`},
	{"gated", "", "a", `"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"SchedulingGated"}]`},
	{"init-first", "i j", "a", `"phase":"Pending","initContainerStatuses":[{RUN i},{WAIT j}],"containerStatuses":[{WAIT a}]`},
	{"init-second", "i j", "a", `"phase":"Pending","initContainerStatuses":[{DONE i},{RUN j}],"containerStatuses":[{WAIT a}]`},
	{"init-waits", "i j", "a", `"phase":"Pending","initContainerStatuses":[{DONE i},{PULL j}]`},
	{"init-failed", "i", "a", `"phase":"Pending","initContainerStatuses":[{FAIL i}]`},
	{"init-code", "i", "a", `"phase":"Pending","initContainerStatuses":[{CODE i}]`},
	{"init-signal", "i", "a", `"phase":"Pending","initContainerStatuses":[{SIGNAL i}]`},
	{"init-again", "i", "a", `"phase":"Running","initContainerStatuses":[{AGAIN i}],"containerStatuses":[{READY a}],"conditions":[{"type":"Initialized","status":"True"}]`},
	{"sidecar", "i +s", "a", `"phase":"Running","initContainerStatuses":[{DONE i},{READY s,"started":true}],"containerStatuses":[{READY a}]`},
	{"sidecar-unready", "+s", "a", `"phase":"Running","initContainerStatuses":[{AGAIN s,"started":true}],"containerStatuses":[{READY a}]`},
	{"sidecar-starts", "+s i", "a", `"phase":"Pending","initContainerStatuses":[{RUN s,"started":false},{WAIT i}]`},
	{"crash-loop", "", "a b", `"phase":"Running","containerStatuses":[{CRASH a},{READY b}]`},
	{"crash-loops", "", "a b", `"phase":"Running","containerStatuses":[{CRASH a},{PULL b}]`},
	{"code", "", "a", `"phase":"Failed","containerStatuses":[{CODE a}]`},
	{"signal", "", "a", `"phase":"Failed","containerStatuses":[{SIGNAL a}]`},
	{"completed", "", "a", `"phase":"Succeeded","containerStatuses":[{DONE a}]`},
	{"half-completed", "", "a b", `"phase":"Running","containerStatuses":[{DONE a},{READY b}],"conditions":[{"type":"Ready","status":"True"}]`},
	{"half-completed-unready", "", "a b", `"phase":"Running","containerStatuses":[{DONE a},{READY b}],"conditions":[{"type":"Ready","status":"False"}]`},
	{"half-failed", "", "a b", `"phase":"Running","containerStatuses":[{DONE a},{FAIL b}]`},
	{"unready", "", "a", `"phase":"Running","containerStatuses":[{RUN a}]`},
	{"running-deleted", "", "a", `"phase":"Running","containerStatuses":[{READY a}]`},
	{"lost-deleted", "", "a", `"phase":"Running","reason":"NodeLost","containerStatuses":[{READY a}]`},
	{"failed-deleted", "", "a", `"phase":"Failed","containerStatuses":[{FAIL a}]`},
}

// containerStates are the words of podStatuses.
var containerStates = strings.NewReplacer(
	"RUN ", `"ready":false,"state":{"running":{"startedAt":"2026-03-14T09:00:00Z"}},"name":`,
	"READY ", `"ready":true,"state":{"running":{"startedAt":"2026-03-14T09:00:00Z"}},"name":`,
	"WAIT ", `"ready":false,"state":{"waiting":{"reason":"PodInitializing"}},"name":`,
	"PULL ", `"ready":false,"state":{"waiting":{"reason":"ImagePullBackOff"}},"name":`,
	"DONE ", `"ready":false,"state":{"terminated":{"exitCode":0,"reason":"Completed"}},"name":`,
	"FAIL ", `"ready":false,"state":{"terminated":{"exitCode":1,"reason":"Error"}},"name":`,
	"CODE ", `"ready":false,"state":{"terminated":{"exitCode":3}},"name":`,
	"SIGNAL ", `"ready":false,"state":{"terminated":{"exitCode":137,"signal":9}},"name":`,
	"CRASH ", `"ready":false,"restartCount":4,"lastState":{"terminated":{"exitCode":1,"finishedAt":"2026-03-14T09:00:00Z"}},"state":{"waiting":{"reason":"CrashLoopBackOff"}},"name":`,
	"AGAIN ", `"ready":false,"restartCount":2,"lastState":{"terminated":{"exitCode":1,"finishedAt":"2026-03-14T09:00:00Z"}},"state":{"running":{"startedAt":"2026-03-14T09:00:00Z"}},"name":`,
)

var names = regexp.MustCompile(`"name":(\w)`)

// TestPodColumns: kubectl shows the states of pods as it shows them from the API server. A dashboard that shows Running for a pod that does not
// run is worse than none.
func TestPodColumns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	real, served := w.kubectls()
	for _, p := range podStatuses {
		w.must(w.request("POST", "pods", fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"finalizers":["test.example.com/keep"]},"spec":{"nodeName":"node-1","initContainers":[%s],"containers":[%s]}}`,
			p.name, containers(p.init), containers(p.containers))))
		w.patch("pods/"+p.name+"/status", `{"status":{`+names.ReplaceAllString(containerStates.Replace(p.status), `"name":"$1"`)+`}}`)
		if strings.HasSuffix(p.name, "-deleted") {
			w.must(w.request("DELETE", "pods/"+p.name, `{"kind":"DeleteOptions","apiVersion":"v1"}`))
		}
	}
	w.ready()
	if why := w.differs(real, served, []string{"get", "pods", "-o", "wide"}); why != "" {
		t.Errorf("kubectl get pods (-API server +bridge serve):\n%s", why)
	}
	for _, p := range podStatuses {
		w.patch("pods/"+p.name, `{"metadata":{"finalizers":null}}`)
	}
}

// containers returns the JSON of containers with these names.
func containers(names string) string {
	var all []string
	for _, name := range strings.Fields(names) {
		sidecar := ""
		if name[0] == '+' {
			name, sidecar = name[1:], `,"restartPolicy":"Always"`
		}
		all = append(all, fmt.Sprintf(`{"name":%q,"image":"%s:1"%s}`, name, name, sidecar))
	}
	return strings.Join(all, ",")
}
