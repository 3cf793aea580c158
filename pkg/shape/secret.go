package shape

import (
	"encoding/base64"
	"fmt"

	"github.com/kubebridge/kubebridge/internal/scan"
)

// Redacted stands for a value when there is no key to hash it with. Like a hash
// it is valid base64, so that a Secret's data still decodes.
const Redacted = "redacted"

// hashPrefix and 64 hexadecimal digits are 76 letters of base64.
const hashPrefix = "hmac+sha256/"

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Secrets replaces the values of core Secrets. The zero value replaces each by
// "redacted".
type Secrets struct {
	// Plain lets the values pass.
	Plain bool
	// Key makes values keyed hashes (HMAC-SHA-256): a change shows, the value does
	// not, and equal values in two places do not look equal.
	Key []byte
}

// Mode says in a word what happens to values: "plain", "hash" or "redacted".
func (s Secrets) Mode() string {
	switch {
	case s.Plain:
		return "plain"
	case len(s.Key) > 0:
		return "hash"
	default:
		return Redacted
	}
}

// Append appends the Secret raw to dst with every value under data and stringData, and
// of every annotation but those of [PlainAnnotations], replaced. where is the object's
// namespace/name. On an error nothing of raw may be used.
func (s Secrets) Append(dst, raw []byte, where string) ([]byte, error) {
	if s.Plain {
		return append(dst, raw...), nil
	}
	w := walker{root: secretPaths, mac: newMAC(s.Key), resource: "secrets"}
	out, changed, err := w.walk(dst, raw, where)
	if err != nil {
		return nil, fmt.Errorf("redact secret %s: %w", where, err)
	}
	if !changed {
		out = append(out, raw...)
	}
	return out, nil
}

// secretPaths is what is hidden of a Secret. It is never changed.
var secretPaths = func() *node {
	root := &node{}
	hideSecrets(root)
	return root
}()

// hideSecrets adds what is hidden of a Secret. An object that has another form than a
// Secret's is an error: it is not known where its values are.
func hideSecrets(root *node) {
	root.object = true
	for _, name := range []string{"data", "stringData"} {
		n := root.at(named(name))
		n.object = true
		n.along(step{kind: stepAny}).action = secretHash
	}
	root.at(named("metadata")).object = true
	annotations := root.at(named("metadata", "annotations"))
	annotations.object = true
	annotations.most, annotations.spared = &node{action: hashed}, PlainAnnotations()
}

// PlainAnnotations are the annotations of Secrets that are published as they are: they say what made the Secret, and hold no part of its
// values. Any other annotation may: a token, a hash without a key, what was applied, or the command line that applied it.
func PlainAnnotations() []string {
	return []string{
		"kubernetes.io/service-account.name", "kubernetes.io/service-account.uid",
		"meta.helm.sh/release-name", "meta.helm.sh/release-namespace", "argocd.argoproj.io/tracking-id",
		"cert-manager.io/certificate-name", "cert-manager.io/issuer-name", "cert-manager.io/issuer-kind", "cert-manager.io/issuer-group",
	}
}

// plain is the value itself where v is a string of base64, else v's text. It is valid
// until the next call.
func (w *walker) plain(v []byte) []byte {
	if v[0] != '"' {
		return v
	}
	text := scan.Unquote(v)
	b, err := base64.StdEncoding.AppendDecode(w.decoded[:0], text)
	if w.decoded = b; err != nil {
		return text
	}
	return b
}
