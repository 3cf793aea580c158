package event

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// The API server limits neither the length of the names of some objects, nor how deeply most objects are nested. With these
// limits, every bus accepts every event, and every consumer can read it.
const (
	// MaxName is the greatest length in bytes of a name or a namespace in attributes, keys and the
	// inventory. [BoundName] shortens longer ones.
	MaxName = 2 << 10
	// MaxToken is the greatest length in bytes of a token of a subject. Every DNS subdomain fits.
	MaxToken = 253
	// MaxSubject is the greatest length in bytes of a subject: NATS servers close the connection of a client that sends much longer ones.
	MaxSubject = 1 << 10
	// MaxLevels is the greatest nesting depth of the arrays and objects of a body. An object that
	// is nested more deeply is published like an object that is too large for the bus.
	MaxLevels = 500
)

// keptName is the number of bytes that are kept of a long name.
const keptName = 1 << 10

// BoundName returns a name or a namespace as events have it. A name of more than [MaxName] bytes is replaced by its
// first 1,024 bytes (fewer, if a character would be cut), a percent sign, and the SHA-256 of the whole name in hexadecimal
// digits. The API server accepts no name with a percent sign.
func BoundName(name string) string {
	if len(name) <= MaxName {
		return name
	}
	return strings.ToValidUTF8(name[:keptName], "") + "%" + digest(name)
}

// WholeName reports whether a name is the object's whole name: [BoundName] has not shortened it, and would not.
func WholeName(name string) bool { return len(name) <= MaxName && !strings.Contains(name, "%") }

// SubjectToken turns any string into a token of a NATS subject, like [EscapeToken]. If the result would be longer than
// [MaxToken], it returns "=sha256-" and the SHA-256 of the string in hexadecimal digits. No string escapes to that form.
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
