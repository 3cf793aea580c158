package event

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// The API server does not bound the names of some objects, nor how deeply most may be nested. These
// bounds make every event one that every bus takes and every consumer can read.
const (
	// MaxName is how many bytes a name or a namespace may have in attributes and keys, and in the
	// inventory. A longer one is replaced as [BoundName] does.
	MaxName = 2 << 10
	// MaxToken is how many bytes a token of a subject may have. Every name that is a DNS subdomain fits.
	MaxToken = 253
	// MaxSubject is how many bytes a subject may have: NATS servers close the connection of a client that sends much longer ones.
	MaxSubject = 1 << 10
	// MaxLevels is how deeply the arrays and objects of a body may stand in each other. An object that
	// is nested more deeply is published as if its body did not fit the bus.
	MaxLevels = 500
)

// keptName is how much of a long name is left, in bytes.
const keptName = 1 << 10

// BoundName is a name or a namespace as events have it. One of more than [MaxName] bytes is replaced by its
// first 1,024 bytes, less where a character would be cut, a percent sign, and the SHA-256 of the whole in hexadecimal
// digits. The API server takes no name with a percent sign.
func BoundName(name string) string {
	if len(name) <= MaxName {
		return name
	}
	return strings.ToValidUTF8(name[:keptName], "") + "%" + digest(name)
}

// WholeName reports whether a name is the object's: not one that [BoundName] has replaced, nor one that it would replace.
func WholeName(name string) bool { return len(name) <= MaxName && !strings.Contains(name, "%") }

// SubjectToken makes any string a token of a NATS subject: as [EscapeToken] does, or "=sha256-" and the SHA-256 of
// the string in hexadecimal digits, where that is longer than [MaxToken]. No string escapes to that.
func SubjectToken(s string) string {
	token := EscapeToken(s)
	if len(token) <= MaxToken {
		return token
	}
	return "=sha256-" + digest(s)
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
