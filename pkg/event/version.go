package event

import "k8s.io/apimachinery/pkg/util/resourceversion"

// Newer reports whether resourceVersion a comes after b. Within one resource resourceVersions
// may be compared since Kubernetes 1.35 (KEP-5504). Those of some aggregated APIs are not numbers:
// then it reports whether they differ.
func Newer(a, b string) bool {
	n, err := resourceversion.CompareResourceVersion(a, b)
	if err != nil {
		return a != b
	}
	return n > 0
}

// Older reports whether resourceVersion a is known to come before b: where they are not numbers
// it never is.
func Older(a, b string) bool {
	n, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && n < 0
}
