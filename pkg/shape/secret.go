package shape

import (
	"encoding/base64"
	"fmt"

	"github.com/kubebridge/kubebridge/internal/base/scan"
)

// Redacted replaces masked values, and hashed values if there is no key. Like a hash
// it is valid base64, so that a Secret's data still decodes.
const Redacted = "redacted"

// hashPrefix begins every hash. With the 64 hexadecimal digits that follow, a hash has 76 characters and is valid base64.
const hashPrefix = "hmac+sha256/"

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Secrets says how the values of core Secrets are replaced. The zero value replaces each by
// "redacted".
type Secrets struct {
	// Plain publishes the values unchanged.
	Plain bool
	// Key replaces values by keyed hashes (HMAC-SHA-256). A hash shows that a value changed, but not the
	// value. Equal values in two places have different hashes.
	Key []byte
}

// Mode returns how values are replaced: "plain", "hash" or "redacted".
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

// Append appends the Secret raw to dst. It replaces every value under data and stringData, and every
// annotation that is not one of [PlainAnnotations]. where is the object's
// namespace/name. On an error, no part of raw may be published.
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

// secretPaths has the paths that are hidden in Secrets. It is never changed.
var secretPaths = func() *node {
	root := &node{}
	hideSecrets(root)
	return root
}()

// hideSecrets adds the paths that are hidden in Secrets. An object that does not have the form of a
// Secret is an error, because its values may be anywhere.
func hideSecrets(root *node) {
	root.object = true
	for _, name := range []string{"data", "stringData"} {
		n := root.addPath(named(name))
		n.object = true
		n.addStep(step{kind: stepAny}).action = secretHash
	}
	root.addPath(named("metadata")).object = true
	annotations := root.addPath(named("metadata", "annotations"))
	annotations.object = true
	annotations.anyBut, annotations.exceptions = &node{action: hashed}, PlainAnnotations()
}

// PlainAnnotations returns the annotations of Secrets that are published as they are: they name what created the Secret, and hold no part
// of its values. Other annotations may hold a token, a hash without a key, the applied object, or the command line that applied it.
func PlainAnnotations() []string {
	return []string{
		"kubernetes.io/service-account.name", "kubernetes.io/service-account.uid",
		"meta.helm.sh/release-name", "meta.helm.sh/release-namespace", "argocd.argoproj.io/tracking-id",
		"cert-manager.io/certificate-name", "cert-manager.io/issuer-name", "cert-manager.io/issuer-kind", "cert-manager.io/issuer-group",
	}
}

// plain returns the decoded value if v is a string of valid base64, otherwise the text of v. The result is valid
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
