package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// leaderElection names the Lease after the bridge unless its name is set. It checks that the times prevent two leaders,
// and that a new leader can read the checkpoint of its predecessor.
func (p *problems) leaderElection(c *Config) {
	e := &c.LeaderElection
	if !e.Enabled {
		return
	}
	const at = "leaderElection."
	if e.LeaseName == "" {
		e.LeaseName = "kubebridge-" + c.Name
	} else if wrong := validation.IsDNS1123Subdomain(e.LeaseName); len(wrong) > 0 {
		p.add(at+"leaseName", "%q cannot be the name of a Lease: %s", e.LeaseName, strings.Join(wrong, "; "))
	}
	if wrong := validation.IsDNS1123Label(e.Namespace); e.Namespace != "" && len(wrong) > 0 {
		p.add(at+"namespace", "%q cannot be a namespace: %s", e.Namespace, strings.Join(wrong, "; "))
	}
	slowest := e.RetryPeriod * 6 / 5 // client-go's own condition
	switch {
	case e.RetryPeriod <= 0:
		p.add(at+"retryPeriod", "%s is not a time to wait: use for example 1s", e.RetryPeriod)
	case e.RenewDeadline <= slowest:
		p.add(at+"renewDeadline", "%s leaves no time for a second attempt: use more than %s, 1.2 times the retryPeriod", e.RenewDeadline, slowest)
	case e.LeaseDuration <= e.RenewDeadline+e.RetryPeriod:
		p.add(at+"leaseDuration", "%s is over before the leader has given up: use more than %s, renewDeadline and retryPeriod together", e.LeaseDuration, e.RenewDeadline+e.RetryPeriod)
	case e.LeaseDuration%time.Second != 0:
		p.add(at+"leaseDuration", "%s: a Lease counts whole seconds", e.LeaseDuration)
	}
	if c.Checkpoint.File.Path != "" {
		p.add("checkpoint.file.path", "a directory cannot be shared by the replicas of leaderElection: leave it out, the checkpoint is then kept on the bus")
		return
	}
	for i := range c.Sinks {
		s := &c.Sinks[i]
		path := fmt.Sprintf("sinks[%d]", i)
		switch {
		case s.traits().Local != "":
			b, _ := s.block()
			p.fields(path, b.kind, errors.New(b.Traits().Local))
		case !c.OnBus(s):
			p.add(path, "with leaderElection its checkpoint must be on the bus, where the next leader finds it: that can kafka, and nats with `delivery: exactly-once`")
		}
	}
}
