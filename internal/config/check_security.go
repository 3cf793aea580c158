package config

import (
	"math"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	leastKeyBytes = 16
	// leastKeyValues is the minimum number of different bytes in a key. Of two million keys of 16 random hexadecimal
	// digits, one has four or fewer.
	leastKeyValues = 5
	// leastKeyBits is the minimum strength of a key. It is below the strength of 16 random bytes, and above that of a word.
	leastKeyBits = 100
)

// security rejects settings that are unsafe everywhere, and warns about settings that are safe only in some environments:
// behind a network policy, in a mesh that encrypts, on a machine with one user.
func (p *problems) security(c *Config) {
	if c.Secrets.Values == "hash" && c.Secrets.HashKeyFile != "" {
		p.hashKeyFile(c.Secrets.HashKeyFile)
	}
	p.kindsOfPaths(c)
	p.statusSecurity(&c.Status)
	p.auditWarnings(c)
}

func (p *problems) hashKey(s *Secrets) {
	for _, at := range []struct{ path, value string }{{"secrets.hashKeyFile", s.HashKeyFile}, {"secrets.hashKeySecret", s.HashKeySecret}} {
		if at.value != "" && (s.Values == "redact" || s.Values == "plain") {
			p.add(at.path, "with `values: %s` nothing is hashed, by redact neither: leave it out, or set `values: hash`", s.Values)
		}
	}
	if s.HashKeySecret == "" {
		return
	}
	if s.HashKeyFile != "" {
		p.add("secrets.hashKeySecret", "there is one key: leave out hashKeySecret or hashKeyFile")
	}
	namespace, name, ok := strings.Cut(s.HashKeySecret, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		p.add("secrets.hashKeySecret", "%q does not name a Secret: write namespace/name", s.HashKeySecret)
	}
}

// hashKeyFile checks the key if the file exists. A configuration may be validated on a machine without the file.
func (p *problems) hashKeyFile(name string) {
	const path = "secrets.hashKeyFile"
	if !p.secretFile(path, name, "could try values until their hashes fit") {
		return
	}
	key, err := os.ReadFile(name)
	if err != nil {
		return
	}
	const remedy = "use 32 random bytes, as from `head -c 32 /dev/urandom`"
	switch values, bits := strength(key); {
	case len(key) < leastKeyBytes:
		p.add(path, "%s: %d bytes are too few for a key: use at least %d random ones", name, len(key), leastKeyBytes)
	case values < leastKeyValues:
		p.add(path, "%s holds %d different bytes, which can be guessed: %s", name, values, remedy)
	case bits < leastKeyBits:
		p.warn(path, "%s holds a text that could be guessed (at most %d bits): %s. Another key gives every hidden value another hash", name, bits, remedy)
	}
}

// secretFile checks the permissions of a file, and reports whether the file exists. threat is what readers could do.
func (p *problems) secretFile(path, name, threat string) bool {
	info, err := os.Stat(name)
	if err != nil {
		return false
	}
	switch mode := info.Mode().Perm(); {
	case mode&0o002 != 0:
		p.add(path, "everyone on this machine may write to %s (mode %o): replace it by a new one, with mode 600", name, mode)
	case mode&0o004 != 0:
		p.warn(path, "everyone on this machine may read %s (mode %o), and %s: run chmod 600, or mount the Secret with defaultMode: 0440", name, mode, threat)
	}
	return true
}

// strength returns the number of different bytes in a key, and its number of bits if each character was drawn from all
// kinds of characters in the key: digits, letters of a hexadecimal number, others.
func strength(key []byte) (values, bits int) {
	key = []byte(strings.TrimRight(string(key), "\r\n"))
	sorted := slices.Sorted(slices.Values(key))
	values = len(slices.Compact(sorted))
	alphabet := 0
	for _, kind := range []struct {
		size int
		has  func(c byte) bool
	}{
		{10, func(c byte) bool { return c >= '0' && c <= '9' }},
		{6, func(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'f' }},
		{20, func(c byte) bool { return c >= 'g' && c <= 'z' }},
		{26, func(c byte) bool { return c >= 'G' && c <= 'Z' }},
		{33, func(c byte) bool { return c >= ' ' && c < 0x7f && !isWord(c) || c == '$' }},
		{161, func(c byte) bool { return c < ' ' || c >= 0x7f }},
	} {
		if slices.ContainsFunc(key, kind.has) {
			alphabet += kind.size
		}
	}
	return values, int(float64(len(key)) * math.Log2(float64(max(alphabet, 1))))
}
