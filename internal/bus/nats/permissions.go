package nats

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/kubebridge/kubebridge/internal/bus"
	"github.com/kubebridge/kubebridge/pkg/sink/nats"
)

// needs is what a NATS sink needs of its servers.
type needs struct {
	User     string        // the bridge's user
	Writer   nats.Grants   // its permissions
	Accounts nats.Accounts // what readers need: state, history and consumers
	Streams  [][]byte      // JSON, as `nats stream add --config` takes it
	Notes    []string
}

func (c *Config) needs(s *bus.Setup, o *bus.PermissionOptions) (out needs, err error) {
	if c.Embedded != nil {
		out.Notes = bus.AddNote(out.Notes, "The server is embedded: nothing has to be granted.")
		return out, nil
	}
	id, n := o.Identity(s), c.sink()
	if out.Writer, err = n.Grants(id); err != nil {
		return out, err
	}
	if out.Accounts, err = n.Accounts(id); err != nil {
		return out, err
	}
	out.User = cmp.Or(c.Auth.Username, "bridge")
	unowned := id
	unowned.ClusterUID = o.ClusterUID
	if err := out.stream(n.StreamDefinition(unowned)); err != nil {
		return out, err
	}
	if c.keepsCheckpoint(s) {
		out.Writer.Publish = append(out.Writer.Publish, n.CheckpointGrants(id)...)
		if err := out.stream(nats.BucketDefinition(id, c.Stream.Replicas)); err != nil {
			return out, err
		}
	}
	if o.ClusterUID == "" && n.IsLog() {
		out.Notes = bus.AddNote(out.Notes, "Put the UID of the namespace kube-system in place of %s, or give --cluster-uid, or --connect.", bus.UnknownUID)
	}
	return out, nil
}

func (n *needs) stream(text []byte, err error) error {
	if text == nil || err != nil {
		return err
	}
	n.Streams = append(n.Streams, text)
	return nil
}

// write prints the accounts for nats-server.conf, and a command for each stream.
func (n needs) write(w io.Writer) error {
	var b strings.Builder
	for _, note := range n.Notes {
		bus.Comment(&b, "", note)
	}
	if n.User != "" {
		for _, text := range []string{
			"For nats-server.conf. The bridge and those who read the events have an account each: a server does not check a request's reply subject, so in one account readers could have answers published to the stream.",
			"$BRIDGE_PASSWORD and $READER_PASSWORD are variables of the server's environment; other ways to log in work, too. Only bridges may use the account KUBEBRIDGE. Sinks of one server share the accounts: merge their lines.",
			bus.ReadersHead,
			"They read with pull consumers, and with plain subscriptions. Answers come to inboxes. Clients other than the bridge have theirs in _INBOX.> unless they are given another prefix (--inbox-prefix, CustomInboxPrefix): allow a consumer's user to subscribe to a prefix of its own, because in _INBOX.> it could see the answers to all users.",
			"All readers share the server's limit of consumers (1000 per stream by default); the bridge does not need one. To have the server delete those that nobody uses: nats stream edit STREAM --limit-consumer-inactive=1h",
		} {
			bus.Comment(&b, "", text)
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
		bus.Comment(&b, "", "The bridge creates this stream if it is missing. To create it beforehand:")
		fmt.Fprintf(&b, "nats stream add %s --config /dev/stdin <<'END'\n%s\nEND\n", bus.Quote(stream.Name), bytes.ReplaceAll(text, []byte(`\u003e`), []byte(">")))
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
				bus.Comment(&b, "          ", why)
			}
			fmt.Fprintf(&b, "          %q\n", one.Subject)
		}
		b.WriteString("        ]}\n")
	}
	b.WriteString("      }}\n    ")
	return b.String()
}
