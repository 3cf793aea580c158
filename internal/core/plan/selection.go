package plan

import "strings"

// inVersion separates a selection from the API version in which the resource is read.
const inVersion = " version="

// InVersion returns a selection of a resource that is read in an API version. The selection may have another version, which does not count then.
func InVersion(selection, version string) string {
	base, _, _ := strings.Cut(selection, inVersion)
	return base + inVersion + version
}

// Selectors returns the selectors of a selection: what [SelectionOf] was made of. The selection may have an API version.
func Selectors(selection string) (labels, fields string) {
	base, _, _ := strings.Cut(selection, inVersion)
	if rest, ok := strings.CutPrefix(base, "labels="); ok {
		labels, base, _ = strings.Cut(rest, "&") // which no label selector has
	}
	return labels, strings.TrimPrefix(base, "fields=")
}
