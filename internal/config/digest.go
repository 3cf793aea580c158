package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/spf13/pflag"
)

// Digest identifies the settings, in hex. It does not depend on passwords, tokens and URLs, nor on the values of references, so that these cannot be
// guessed by trying. After [Config.Reloaded] it is that of the file whose entries are in effect.
func (c *Config) Digest() string { return c.digest }

// digest returns the digest of the settings in a text.
func (p *problems) digest(text []byte, flags *pflag.FlagSet, env func(string) (string, bool)) (string, error) {
	written := problems{file: p.file, places: p.places, origins: p.origins, scalars: p.scalars, asWritten: true}
	c, err := written.decode(text, flags, env)
	if err != nil {
		return "", err
	}
	blank(reflect.ValueOf(c).Elem(), "")
	settings, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.file, err)
	}
	sum := sha256.Sum256(settings)
	return hex.EncodeToString(sum[:]), nil
}

// blank removes the values of settings that may be secret.
func blank(v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			blank(v.Elem(), path)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if tag := v.Type().Field(i).Tag.Get("yaml"); tag != "" {
				blank(v.Field(i), join(path, tag))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			blank(v.Index(i), path)
		}
	case reflect.String:
		if secretKey.MatchString(path) {
			v.SetString("")
		}
	}
}
