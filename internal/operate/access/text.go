package access

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

// WriteShell prints the topics and ACLs as commands of Kafka's tools. principal is
// the bridge's, as in "User:bridge"; reader is the principal of readers of the events.
func (k Kafka) WriteShell(w io.Writer, principal, reader string) error {
	var b strings.Builder
	for _, n := range k.Notes {
		comment(&b, "", n)
	}
	servers := " --bootstrap-server " + quote(strings.Join(k.Brokers, ","))
	for _, t := range k.Topics {
		fmt.Fprintf(&b, "kafka-topics.sh%s --create --if-not-exists --topic %s --partitions %d", servers, quote(t.Name), t.Partitions)
		if t.Replicas > 0 {
			fmt.Fprintf(&b, " --replication-factor %d", t.Replicas)
		}
		for _, key := range slices.Sorted(maps.Keys(t.Configs)) {
			fmt.Fprintf(&b, " --config %s", quote(key+"="+t.Configs[key]))
		}
		b.WriteString("\n")
	}
	acls := func(list []ACL, principal string) {
		for _, a := range list {
			a.write(&b, servers, principal)
		}
	}
	acls(k.ACLs, principal)
	if len(k.Readers) == 0 {
		_, err := io.WriteString(w, b.String())
		return err
	}
	b.WriteString("\n")
	comment(&b, "", readersHead)
	comment(&b, "", "A consumer in a group also needs Read on the group: --operation Read --group GROUP. Read the events of exactly-once delivery with isolation.level=read_committed.")
	acls(k.Readers, reader)
	_, err := io.WriteString(w, b.String())
	return err
}

// readersHead is the heading of the permissions that a running bridge does not need.
const readersHead = "READERS: permissions for `bridge state`, `bridge history` and consumers of the events, with a user of their own. A running bridge does not need them."

func (a ACL) write(b *strings.Builder, servers, principal string) {
	comment(b, "", a.Why)
	fmt.Fprintf(b, "kafka-acls.sh%s --add --allow-principal %s", servers, quote(principal))
	for _, op := range a.Operations {
		b.WriteString(" --operation " + op)
	}
	fmt.Fprintf(b, " --%s %s", a.Resource, quote(a.Name))
	if a.Prefixed {
		b.WriteString(" --resource-pattern-type prefixed")
	}
	b.WriteString("\n")
}

// quote quotes a word for a shell, if it needs quotes.
func quote(s string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-:,=/", c)
	}
	if s != "" && strings.IndexFunc(s, func(c rune) bool { return !plain(c) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// WriteText prints the accounts for nats-server.conf, and a command for each stream.
func (n NATS) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, note := range n.Notes {
		comment(&b, "", note)
	}
	if n.User != "" {
		for _, text := range []string{
			"For nats-server.conf. The bridge and those who read the events have an account each: a server does not check a request's reply subject, so in one account readers could have answers published to the stream.",
			"$BRIDGE_PASSWORD and $READER_PASSWORD are variables of the server's environment; other ways to log in work, too. Only bridges may use the account KUBEBRIDGE. Sinks of one server share the accounts: merge their lines.",
			readersHead,
			"They read with pull consumers, and with plain subscriptions. Answers come to inboxes. Clients other than the bridge have theirs in _INBOX.> unless they are given another prefix (--inbox-prefix, CustomInboxPrefix): allow a consumer's user to subscribe to a prefix of its own, because in _INBOX.> it could see the answers to all users.",
			"All readers share the server's limit of consumers (1000 per stream by default); the bridge does not need one. To have the server delete those that nobody uses: nats stream edit STREAM --limit-consumer-inactive=1h",
		} {
			comment(&b, "", text)
		}
		b.WriteString(n.Accounts.ServerConfig(user(n.User, "BRIDGE", n.Writer), user("reader", "READER", n.Accounts.Reader())))
	}
	for _, text := range n.Streams {
		var stream struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(text, &stream); err != nil {
			return fmt.Errorf("definition of a stream: %w", err)
		}
		comment(&b, "", "The bridge creates this stream if it is missing. To create it beforehand:")
		fmt.Fprintf(&b, "nats stream add %s --config /dev/stdin <<'END'\n%s\nEND\n", quote(stream.Name), bytes.ReplaceAll(text, []byte(`\u003e`), []byte(">")))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// user formats a user with permissions for nats-server.conf.
func user(name, variable string, g nats.Grants) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n      {user: %q, password: $%s_PASSWORD, permissions: {\n", name, variable)
	for _, side := range []struct {
		name   string
		grants []nats.Grant
	}{{"publish", g.Publish}, {"subscribe", g.Subscribe}} {
		if len(side.grants) == 0 {
			fmt.Fprintf(&b, "        %s: {deny: [\">\"]}\n", side.name)
			continue
		}
		fmt.Fprintf(&b, "        %s: {allow: [\n", side.name)
		why := ""
		for _, one := range side.grants {
			if one.Why != why {
				why = one.Why
				comment(&b, "          ", why)
			}
			fmt.Fprintf(&b, "          %q\n", one.Subject)
		}
		b.WriteString("        ]}\n")
	}
	b.WriteString("      }}\n    ")
	return b.String()
}
