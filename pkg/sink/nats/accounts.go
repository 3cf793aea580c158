package nats

import (
	"fmt"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// A server checks the subject that a user publishes to, but not the reply subject of the user's request: a request with a
// reply subject of the stream puts the answer on the stream. So readers have an account of their own. It imports the events and
// the requests that readers need. Answers are published in the account of the requesting user.
const (
	bridgeAccount = "KUBEBRIDGE"
	readerAccount = "KUBEBRIDGE_READERS"
	// readerAPI stands in place of $JS.API for readers: on that, their own account answers that it has no JetStream.
	readerAPI = bridgeAccount + ".API."
)

// Request is one that readers may make.
type Request struct {
	Subject, Why string
	many         bool // it has several answers
}

// as is what readers publish it to, after the mapping of their account.
func (r Request) as() string {
	if rest, found := strings.CutPrefix(r.Subject, api); found {
		return readerAPI + rest
	}
	return r.Subject
}

// Accounts describes the accounts that readers of a sink's events need on a server.
type Accounts struct {
	Requests []Request
	Events   []string // subjects
	inbox    string   // of what answers come to
	leaf     bool     // another account, of a leaf node, gets the events
	inner    bool     // of an embedded server: consumers may push to inboxes, and readers need no login
}

// inboxes are subjects that consumers of older clients push to. Answers to the bridge have longer subjects.
const inboxes = "_INBOX.*"

func (a *Accounts) request(why string, subjects ...string) {
	for _, s := range subjects {
		many := strings.HasPrefix(s, api+"CONSUMER.MSG.NEXT.") || strings.HasPrefix(s, ackPrefix)
		a.Requests = append(a.Requests, Request{s, why, many})
	}
}

const ackPrefix = "$JS.ACK."

// Accounts returns the accounts for a [Reader] and all other consumers of the events.
func (c Config) Accounts(id event.Identity) (a Accounts, err error) {
	if c, err = c.Complete(); err != nil {
		return a, err
	}
	a.Events, a.inbox = c.subjects(id), c.inbox(id)+".>"
	if c.Delivery == atMostOnce {
		return a, nil // such readers need no requests
	}
	stream := c.StreamName(id.Cluster)
	if c.Delivery == atLeastOnce && c.Stream.Name == "" {
		a.request("finds the stream that takes the subjects; give nats.stream.name to need less", api+"STREAM.NAMES")
		stream = "*"
	}
	a.request("looks the stream up", api+"STREAM.INFO."+stream)
	a.request("reads what the stream keeps", api+"CONSUMER.CREATE."+stream+".>", api+"CONSUMER.MSG.NEXT."+stream+".*")
	a.request("creates consumers as older clients do, and nats-py 2.16 (not for `bridge state` and `bridge history`)",
		api+"CONSUMER.CREATE."+stream, api+"CONSUMER.DURABLE.CREATE."+stream+".*")
	a.request("reads what the replica that answers may lack, and what a stream with too many consumers keeps", api+"STREAM.MSG.GET."+stream)
	a.request("lets a durable consumer be looked up, and acknowledge (not for `bridge state` and `bridge history`)",
		api+"CONSUMER.INFO."+stream+".*", ackPrefix+stream+".>")
	return a, nil
}

// ServerConfig returns the block accounts of nats-server.conf. The arguments are users in the syntax of that file.
func (a Accounts) ServerConfig(bridge, reader string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	why := ""
	explain := func(to string) {
		if why != to {
			why = to
			line("      # %s", why)
		}
	}
	accounts := []string{readerAccount}
	if a.leaf {
		accounts = append(accounts, leafAccount)
	}
	line("accounts {")
	line("  %s {", bridgeAccount)
	line("    jetstream: enabled")
	line("    users: [%s]", bridge)
	line("    exports: [")
	for _, s := range a.Events {
		line("      {stream: %q, accounts: [%s]}", s, strings.Join(accounts, ", "))
	}
	if a.inner {
		line("      {stream: %q, accounts: [%s]}", inboxes, readerAccount)
	}
	for _, r := range a.Requests {
		explain(r.Why)
		response := "single"
		if r.many {
			response = "stream"
		}
		line("      {service: %q, response: %s, accounts: [%s]}", r.Subject, response, readerAccount)
	}
	line("    ]")
	line("  }")
	line("  %s {", readerAccount)
	line("    users: [%s]", reader)
	if a.inner {
		line("    limits: {max_connections: %d}", readerConnections)
	}
	line("    mappings: {%q: %q}", api+">", readerAPI+">")
	line("    imports: [")
	a.importEvents(line)
	if a.inner {
		line("      {stream: {account: %s, subject: %q}}", bridgeAccount, inboxes)
	}
	for _, r := range a.Requests {
		line("      {service: {account: %s, subject: %q}, to: %q}", bridgeAccount, r.Subject, r.as())
	}
	line("    ]")
	line("  }")
	if a.leaf {
		line("  %s {", leafAccount)
		line("    imports: [")
		a.importEvents(line)
		line("    ]")
		line("  }")
	}
	line("}")
	return b.String()
}

func (a Accounts) importEvents(line func(string, ...any)) {
	for _, s := range a.Events {
		line("      {stream: {account: %s, subject: %q}}", bridgeAccount, s)
	}
}

// Reader returns the permissions of a reader within the readers' account. They protect readers from each other.
func (a Accounts) Reader() (g Grants) {
	for _, r := range a.Requests {
		g.publish(r.Why, r.as())
	}
	for _, s := range a.Events {
		g.Subscribe = append(g.Subscribe, Grant{s, "events as they come"})
	}
	if len(a.Requests) > 0 {
		g.Subscribe = append(g.Subscribe, Grant{a.inbox, "answers to `bridge state` and `bridge history`"})
	}
	return g
}

// embedded adds what tools ask a server for that is the bridge's alone, and has consumers of older clients push to inboxes.
func (a Accounts) embedded(leaf bool) Accounts {
	a.leaf, a.inner = leaf, true
	for _, r := range a.Requests {
		stream, found := strings.CutPrefix(r.Subject, api+"STREAM.INFO.")
		if !found {
			continue
		}
		a.request("", api+"INFO", api+"STREAM.NAMES", api+"STREAM.LIST",
			api+"DIRECT.GET."+stream, api+"DIRECT.GET."+stream+".>", "$JS.FC."+stream+".>")
	}
	return a
}
