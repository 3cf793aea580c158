package event

import "cmp"

// Newer reports whether resourceVersion a is later than b. Since Kubernetes 1.35 the resourceVersions of one resource
// may be compared (KEP-5504). Those of some aggregated APIs are not numbers:
// for these it reports whether they differ.
func Newer(a, b string) bool {
	if !isVersion(a) || !isVersion(b) {
		return a != b
	}
	return compareVersions(a, b) > 0
}

// Older reports whether resourceVersion a is earlier than b. It returns false if they are not both
// numbers.
func Older(a, b string) bool {
	return isVersion(a) && isVersion(b) && compareVersions(a, b) < 0
}

// isVersion reports whether a resourceVersion can be compared: it is a decimal number without leading
// zeros, of any length.
func isVersion(s string) bool {
	if s == "" || s[0] == '0' {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

func compareVersions(a, b string) int {
	if len(a) != len(b) {
		return cmp.Compare(len(a), len(b))
	}
	return cmp.Compare(a, b)
}
