package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// isEmpty is the warning about a text that consists of references without values.
const isEmpty = "%s is empty, and so is this text"

// withhold replaces every message by one that does not depend on the values of references, because
// any value may be a secret. It checks the configuration again without replacing
// references. A message that both checks make is shown. Any other message is replaced by the
// message of the second check at the same path by the same rule, or else by a message without values.
func (p *problems) withhold(text []byte, flags *pflag.FlagSet, env func(string) (string, bool)) error {
	written := problems{file: p.file, part: p.part, places: p.places, origins: p.origins, scalars: p.scalars, asWritten: true}
	c, err := written.decode(text, flags, env)
	if err != nil {
		return err
	}
	written.check(c)
	written.security(c)
	shown := slices.Concat(written.list, written.weak)
	for _, list := range [][]problem{p.list, p.weak} {
		for i := range list {
			if list[i].format == isEmpty {
				continue
			}
			p.withholdOne(&list[i], shown)
			for _, name := range p.named(list[i].path) {
				if slices.Contains(p.empty, name) {
					list[i].text += ": " + name + " is empty"
				}
			}
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
	at, names := p.known(one.path), p.named(one.path)
	if len(names) == 0 { // the mistake depends on references at other paths
		names = slices.Concat(slices.Collect(maps.Values(p.references))...)
	}
	one.text = p.at(at, "it is not valid with what %s stands for, and that is not shown: look there", strings.Join(distinct(names), ", ")).text
}

// named returns the references at a path, or at its nearest parent that is known: the path may be a part of a message.
func (p *problems) named(path string) (names []string) {
	at := p.known(path)
	for other, references := range p.references {
		if strings.HasPrefix(other, at) {
			names = append(names, references...)
		}
	}
	return distinct(names)
}

func distinct(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}
