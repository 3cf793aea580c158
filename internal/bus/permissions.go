package bus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/pkg/event"
)

// UnknownUID stands for the cluster's UID if it is not known.
const UnknownUID = "CLUSTER-UID"

// PermissionOptions say what is known in addition to the configuration.
type PermissionOptions struct {
	ClusterUID        string // "": not known
	Principal, Reader string // users in Kafka's ACLs: of the bridge ("": see sasl), and of consumers
	Targets           func() ([]Target, error)
}

// Identity returns the identity with a UID, for names on the bus.
func (o *PermissionOptions) Identity(s *Setup) event.Identity {
	id := s.Identity
	id.ClusterUID = cmp.Or(o.ClusterUID, UnknownUID)
	return id
}

// ReadersHead is the heading of the permissions that a running bridge does not need.
const ReadersHead = "READERS: permissions for `bridge state`, `bridge history` and consumers of the events, with a user of their own. A running bridge does not need them."

// Comment writes a text as lines that begin with #.
func Comment(b *strings.Builder, indent, text string) {
	const width = 100
	line := indent + "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > width && len(line) > len(indent)+1 {
			b.WriteString(line + "\n")
			line = indent + "#"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}

// AddNote appends a note that is not in the list.
func AddNote(notes []string, format string, args ...any) []string {
	n := fmt.Sprintf(format, args...)
	if slices.Contains(notes, n) {
		return notes
	}
	return append(notes, n)
}

// Quote quotes a word for a shell, if it needs quotes.
func Quote(s string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-:,=/", c)
	}
	if s != "" && strings.IndexFunc(s, func(c rune) bool { return !plain(c) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
