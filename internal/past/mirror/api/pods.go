package api

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// podState is what the columns READY, STATUS and RESTARTS show. The rules are those of the API server 1.36.
type podState struct {
	ready, containers int
	status            string
	restarts          restarts
}

// restarts are those of containers, with the time at which one of them ended last, in RFC 3339; "": none has ended.
type restarts struct {
	number int64
	last   string
}

func (r *restarts) add(container map[string]any) {
	r.number += number(container, "restartCount")
	r.last = max(r.last, text(container, "lastState.terminated.finishedAt"))
}

func podStateOf(o map[string]any) podState {
	phase := text(o, "status.phase")
	s := podState{status: cmp.Or(text(o, "status.reason"), phase)}
	for _, c := range list(o, "status.conditions") {
		if text(c, "type") == "PodScheduled" && text(c, "reason") == "SchedulingGated" {
			s.status = "SchedulingGated"
		}
	}
	if ofSidecars, ended := s.initialize(o); ended || condition(o, "Initialized") == "True" {
		s.restarts = ofSidecars
		s.run(o)
	}
	if text(o, "metadata.deletionTimestamp") != "" {
		switch {
		case text(o, "status.reason") == "NodeLost":
			s.status = "Unknown"
		case phase != "Succeeded" && phase != "Failed":
			s.status = "Terminating"
		}
	}
	return s
}

// initialize looks at the init containers up to the first that keeps the pod from running; ended: there is none. It
// returns the restarts of sidecars.
func (s *podState) initialize(o map[string]any) (ofSidecars restarts, ended bool) {
	all, sidecars := list(o, "spec.initContainers"), map[string]bool{}
	for _, c := range all {
		if text(c, "restartPolicy") == "Always" {
			sidecars[text(c, "name")] = true
		}
	}
	s.containers = len(list(o, "spec.containers")) + len(sidecars)
	for i, c := range list(o, "status.initContainerStatuses") {
		sidecar, end := sidecars[text(c, "name")], object(c, "state.terminated")
		s.restarts.add(c)
		if sidecar {
			ofSidecars.add(c)
		}
		waiting := text(c, "state.waiting.reason")
		switch {
		case end != nil && number(end, "exitCode") == 0:
			continue
		case sidecar && c["started"] == true:
			if c["ready"] == true {
				s.ready++
			}
			continue
		case end != nil:
			s.status = "Init:" + endOf(end)
		case waiting != "" && waiting != "PodInitializing":
			s.status = "Init:" + waiting
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(all))
		}
		return ofSidecars, false
	}
	return ofSidecars, true
}

// run looks at the containers, from the last to the first, whose status counts.
func (s *podState) run(o map[string]any) {
	failed, running := "", false
	for _, c := range slices.Backward(list(o, "status.containerStatuses")) {
		s.restarts.add(c)
		waiting, end := text(c, "state.waiting.reason"), object(c, "state.terminated")
		switch {
		case waiting != "":
			s.status = waiting
		case end != nil:
			s.status = endOf(end)
			if number(end, "exitCode") != 0 {
				failed = s.status
			}
		case c["ready"] == true && object(c, "state.running") != nil:
			s.ready, running = s.ready+1, true
		}
	}
	if s.status != "Completed" { // of one of several containers
		return
	}
	switch {
	case running && condition(o, "Ready") == "True":
		s.status = "Running"
	case failed != "":
		s.status = failed
	case running:
		s.status = "NotReady"
	}
}

func endOf(terminated map[string]any) string {
	if reason := text(terminated, "reason"); reason != "" {
		return reason
	}
	if signal := number(terminated, "signal"); signal != 0 {
		return fmt.Sprintf("Signal:%d", signal)
	}
	return fmt.Sprintf("ExitCode:%d", number(terminated, "exitCode"))
}

func podCells(o map[string]any, now time.Time) []any {
	s := podStateOf(o)
	count := fmt.Sprint(s.restarts.number)
	if s.restarts.number > 0 && s.restarts.last != "" {
		count += " (" + age(s.restarts.last, now) + " ago)"
	}
	gates := "<none>"
	if all := list(o, "spec.readinessGates"); len(all) > 0 {
		open := 0
		for _, gate := range all {
			if condition(o, text(gate, "conditionType")) == "True" {
				open++
			}
		}
		gates = fmt.Sprintf("%d/%d", open, len(all))
	}
	return []any{
		nameOf(o), fmt.Sprintf("%d/%d", s.ready, s.containers), s.status, count, ageOf(o, now),
		orNone(text(o, "status.podIP")), orNone(text(o, "spec.nodeName")), orNone(text(o, "status.nominatedNodeName")), gates,
	}
}
