package config

import (
	"reflect"
	"slices"
	"strings"
)

// Changed returns the settings that differ in next, as paths of the file
// (sinks[NAME].kafka.topic for a setting of a sink): reloadable are settings that a running
// bridge can apply, restart are settings that need a restart. The entries of a file that changes anything else need a restart, too: they may rely
// on it, for example on a rule that moved from an entry to the bridge, or on the sink's new destination.
func (c *Config) Changed(next *Config) (reloadable, restart []string) {
	names := c.changed(next)
	waits := slices.ContainsFunc(names, needsRestart)
	for _, name := range names {
		if name == logLevel || isEntries(name) && !waits {
			reloadable = append(reloadable, name)
		} else {
			restart = append(restart, name)
		}
	}
	return reloadable, restart
}

// changed returns the paths of the settings that differ in next.
func (c *Config) changed(next *Config) (names []string) {
	a, b := *c, *next
	a.Sinks, b.Sinks = nil, nil
	differences(reflect.ValueOf(a), reflect.ValueOf(b), "", &names)
	for i := range c.Sinks {
		was, path := &c.Sinks[i], "sinks["+c.Sinks[i].Name+"]"
		if found := next.sink(was.Name); found != nil {
			differences(reflect.ValueOf(*was), reflect.ValueOf(*found), path, &names)
		} else {
			names = append(names, path)
		}
	}
	for _, s := range next.Sinks {
		if c.sink(s.Name) == nil {
			names = append(names, "sinks["+s.Name+"]")
		}
	}
	return names
}

const logLevel = "log.level"

// isEntries reports whether a setting says which objects are published, and how.
func isEntries(name string) bool {
	return name == "resources" || name == "exclude" || strings.HasSuffix(name, "].resources")
}

func needsRestart(name string) bool { return name != logLevel && !isEntries(name) }

// Reloaded returns c with the settings of next that a running bridge can apply: all that differ, or the log level alone. So the result is correct
// as c and next are.
func (c *Config) Reloaded(next *Config) *Config {
	merged := *c
	merged.Log.Level = next.Log.Level
	if slices.ContainsFunc(c.changed(next), needsRestart) {
		return &merged
	}
	merged.Exclude = next.Exclude
	merged.Resources = next.Resources
	merged.digest = next.digest
	merged.places, merged.warnings = nil, nil // the places of sinks in next may differ
	merged.Sinks = slices.Clone(c.Sinks)
	for i := range merged.Sinks {
		merged.Sinks[i].Resources = next.sink(merged.Sinks[i].Name).Resources
	}
	return &merged
}

func (c *Config) sink(name string) *Sink {
	if i := slices.IndexFunc(c.Sinks, func(s Sink) bool { return s.Name == name }); i >= 0 {
		return &c.Sinks[i]
	}
	return nil
}

// differences appends the paths of the values that differ, as deep as maps go.
func differences(a, b reflect.Value, path string, names *[]string) {
	if a.Kind() == reflect.Pointer && a.Type().Elem().Kind() == reflect.Struct && !a.IsNil() && !b.IsNil() {
		a, b = a.Elem(), b.Elem()
	}
	if a.Kind() == reflect.Struct {
		for i := range a.NumField() {
			if !a.Type().Field(i).IsExported() {
				continue
			}
			differences(a.Field(i), b.Field(i), join(path, a.Type().Field(i).Tag.Get("yaml")), names)
		}
		return
	}
	if !reflect.DeepEqual(a.Interface(), b.Interface()) {
		*names = append(*names, path)
	}
}
