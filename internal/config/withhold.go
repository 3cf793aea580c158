package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// withhold replaces every message by one that does not depend on the values of references, because
// any value may be a secret. It checks the configuration again without replacing
// references. A message that both checks make is shown. Any other message is replaced by the
// message of the second check at the same path by the same rule, or else by a message without values.
func (p *problems) withhold(text []byte, flags *pflag.FlagSet, env func(string) (string, bool)) error {
	written := problems{file: p.file, part: p.part, places: p.places, origins: p.origins, asWritten: true}
	c, err := written.decode(text, flags, env)
	if err != nil {
		return err
	}
	written.check(c)
	written.security(c)
	shown := slices.Concat(written.list, written.weak)
	for _, list := range [][]problem{p.list, p.weak} {
		for i := range list {
			p.withholdOne(&list[i], shown)
		}
	}
	return nil
}

func (p *problems) withholdOne(one *problem, shown []problem) {
	for _, same := range []func(problem) bool{
		func(other problem) bool { return other.text == one.text },
		func(other problem) bool { return other.path == one.path && other.format == one.format },
	} {
		if i := slices.IndexFunc(shown, same); i >= 0 {
			one.text = shown[i].text
			return
		}
	}
	at := p.known(one.path) // the path may be a part of a message
	var names []string
	for path, references := range p.references {
		if strings.HasPrefix(path, at) {
			names = append(names, references...)
		}
	}
	if len(names) == 0 { // the mistake depends on references at other paths
		names = slices.Concat(slices.Collect(maps.Values(p.references))...)
	}
	slices.Sort(names)
	one.text = p.at(at, "it is not valid with what %s stands for, and that is not shown: look there", strings.Join(slices.Compact(names), ", ")).text
}
