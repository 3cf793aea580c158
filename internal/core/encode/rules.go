package encode

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubebridge/kubebridge/internal/core/reconcile"
	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/shape"
	"github.com/kubebridge/kubebridge/pkg/shape/filter"
)

// rules are the compiled settings of a collection. They do not change.
type rules struct {
	eventCollection event.Collection
	properties      reconcile.Properties
	// configured is false if the collection has no settings. The values to redact are then unknown, so no
	// body of its objects is published.
	configured bool

	redact  *shape.Shaper // nil: no redaction
	filter  *filter.Filter
	ignore  *shape.Ignore
	ignored []byte // identifies the list of ignored paths; ends with a zero byte, which no path has

	before, patch, changedBy bool

	stamp   reconcile.Digest // of the shape; part of the stamp of a kept body
	route   Route
	values  shape.Values
	encoder event.CollectionEncoder
}

// keeps reports whether published bodies are kept.
func (r *rules) keeps() bool {
	return r.before || r.patch || r.filter != nil && r.filter.Uses("before")
}

// compile checks the settings of a collection.
func (o *Options) compile(c event.Collection, s Settings) (*rules, error) {
	r := o.rulesOf(c)
	r.configured = true
	r.before, r.patch, r.changedBy = s.Before, s.Patch, s.ChangedBy
	r.route = s.Route.or(o.Route)
	redact, err := shape.Compile(rulesFor(&c, s.Redact), o.Secrets)
	if err != nil {
		err = fmt.Errorf("redact: %w", err)
	} else {
		r.redact = redact.Of(c.Group, c.Resource)
	}
	errs := []error{err}
	if s.Filter != "" {
		r.filter, err = filter.Compile(s.Filter)
		errs = append(errs, err)
	}
	if len(s.Ignore) > 0 {
		if r.ignore, err = shape.CompileIgnore(s.Ignore); err != nil {
			errs = append(errs, fmt.Errorf("ignore: %w", err))
		}
		r.ignored = []byte(strings.Join(s.Ignore, "\x00") + "\x00")
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("collection %s: %w", c.ID(), err)
	}
	r.properties = reconcile.Properties{
		Filter: filterDigest(s), Shape: o.shape(r, redact), Route: r.route.write(r.values), Skip: s.SkipSnapshot, Types: typesOf(s.Types),
		Tombstones: o.Tombstones, FilterText: filterText(s), Contents: o.contents(&c, s),
	}
	r.stamp = settingsDigest(r.properties.Shape)
	return r, nil
}

// rulesOf returns the rules of a collection without settings.
func (o *Options) rulesOf(c event.Collection) *rules {
	r := &rules{eventCollection: c, route: o.Route}
	r.values = shape.Values{Cluster: o.Encoder.Cluster, Group: c.Group, Resource: c.Resource, Entry: entryText(&c)}
	r.encoder = o.Encoder.Of(&r.eventCollection)
	return r
}

// rulesFor returns the rules that apply to a collection. A change of other rules must not change the
// digest.
func rulesFor(c *event.Collection, all []shape.Rule) []shape.Rule {
	return slices.DeleteFunc(slices.Clone(all), func(r shape.Rule) bool {
		return !r.Concerns(c.Group, c.Resource)
	})
}

// contents describes for consumers what settings leave out of a collection's objects and what they change, without Types.
func (o *Options) contents(c *event.Collection, s Settings) event.Selection {
	out := event.Selection{
		Labels: c.LabelSelector, Fields: c.FieldSelector, Filtered: s.Filter != "", Ignores: len(s.Ignore) > 0, MetadataOnly: c.MetadataOnly,
		Redacted: c.ResourceID() == "secrets" && !o.Secrets.Plain,
	}
	for _, r := range rulesFor(c, s.Redact) {
		if r.With != shape.WithRemove {
			out.Redacted = true
			continue
		}
		out.Dropped = out.Dropped || r.Preset != ""
		for _, path := range r.Paths {
			switch {
			case path == "status" || strings.HasPrefix(path, "status.") || strings.HasPrefix(path, "status["):
				out.StatusDropped = true
			case path != "metadata.managedFields":
				out.Dropped = true
			}
		}
	}
	return out
}

// shape returns a text that changes if an unchanged object would be published with another body. It
// contains a digest of the hash key, not the key.
func (o *Options) shape(r *rules, redact *shape.Rules) string {
	text := "format=" + o.Encoder.Format.String()
	if o.KeepManagedFields {
		text += " managedFields"
	}
	if r.eventCollection.MetadataOnly {
		text += " metadataOnly"
	}
	if r.redact == nil {
		return text
	}
	text += " redact=" + redact.Digest()
	if r.eventCollection.ResourceID() == "secrets" {
		text += " secrets=" + o.Secrets.Mode()
	}
	if len(o.Secrets.Key) > 0 {
		text += " key=" + hex.EncodeToString(hmacOf(o.Secrets.Key, "kubebridge key id\n")[:16])
	}
	return text
}

// filterDigest returns a digest of the settings that decide which events of an object are published.
func filterDigest(s Settings) string {
	if s.Filter == "" && len(s.Ignore) == 0 {
		return ""
	}
	sum := settingsDigest(s.Filter + "\x00" + strings.Join(s.Ignore, "\x00"))
	return hex.EncodeToString(sum[:])
}

// maxFilterText bounds the text of a filter in the checkpoint, which is in the headers of messages of some sinks.
const maxFilterText = 4 << 10

// filterSettings are the settings that filterDigest is of.
type filterSettings struct {
	Filter string   `json:"filter,omitzero"`
	Ignore []string `json:"ignore,omitzero"`
}

// filterText returns the settings that filterDigest is of, for [Settings.WithFilter]; "": there are none, or they are too long.
func filterText(s Settings) string {
	if s.Filter == "" && len(s.Ignore) == 0 {
		return ""
	}
	text, err := json.Marshal(filterSettings{s.Filter, s.Ignore})
	if err != nil {
		panic(err) // strings always encode
	}
	if len(text) > maxFilterText {
		return ""
	}
	return string(text)
}

// WithFilter returns the settings with the filter and the ignore rules that properties were made of. It returns false if these are not known.
func (s Settings) WithFilter(p reconcile.Properties) (Settings, bool) {
	var f filterSettings
	if p.FilterText != "" {
		if err := json.Unmarshal([]byte(p.FilterText), &f); err != nil {
			return s, false
		}
	}
	s.Filter, s.Ignore = f.Filter, f.Ignore
	return s, filterDigest(s) == p.Filter
}

// settingsDigest returns a digest of settings. Only operators write settings, so it needs no key.
func settingsDigest(text string) reconcile.Digest {
	sum := sha256.Sum256([]byte(text))
	return reconcile.Digest(sum[:16])
}

// typesOf returns the published types from a list of types; nil means all types.
func typesOf(list []event.Type) (types event.Types) {
	if list == nil {
		return types
	}
	for _, t := range []event.Type{event.Added, event.Modified, event.Deleted} {
		if !slices.Contains(list, t) {
			types = types.Without(t)
		}
	}
	return types
}
