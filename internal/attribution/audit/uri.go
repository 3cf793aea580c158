package audit

import (
	"net/url"
	"strings"
)

// shownParameters are the parameters of a query that hold nothing but options of the API: those of ListOptions, GetOptions, CreateOptions, UpdateOptions,
// PatchOptions, DeleteOptions, TableOptions and PodLogOptions, and those of exec and attach that are not the command.
var shownParameters = map[string]bool{
	"allowWatchBookmarks": true, "container": true, "continue": true, "dryRun": true, "fieldManager": true, "fieldSelector": true, "fieldValidation": true, "follow": true,
	"force": true, "gracePeriodSeconds": true, "ignoreStoreReadErrorWithClusterBreakingPotential": true, "includeObject": true, "insecureSkipTLSVerifyBackend": true,
	"labelSelector": true, "limit": true, "limitBytes": true, "orphanDependents": true, "ports": true, "pretty": true, "previous": true, "propagationPolicy": true,
	"resourceVersion": true, "resourceVersionMatch": true, "sendInitialEvents": true, "sinceSeconds": true, "sinceTime": true, "stderr": true, "stdin": true, "stdout": true,
	"stream": true, "tailLines": true, "timeout": true, "timeoutSeconds": true, "timestamps": true, "tty": true, "watch": true,
}

// withoutContent returns a requestURI without what it may hand on to a container, a pod, a service or a node, which can be a password or a token: the
// command of exec and other parameters that are not of the API, and what follows the subresource proxy, or the prefix proxy that the API server had before
// (/api/v1/proxy/…, with the verb proxy). cut says that something is left out.
func withoutContent(uri, verb, subresource string) (_ string, cut bool) {
	path, query, asked := strings.Cut(uri, "?")
	switch {
	case subresource == "proxy":
		return upToProxy(path, 5, asked) // /api/v1/nodes/NAME/proxy/…
	case verb == "proxy":
		return upToProxy(path, 3, asked)
	}
	var shown []string
	for parameter := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(parameter, "=")
		switch plain, err := url.QueryUnescape(name); {
		case parameter == "":
		case err == nil && shownParameters[plain]:
			shown = append(shown, parameter)
		default:
			cut = true
		}
	}
	if len(shown) > 0 {
		path += "?" + strings.Join(shown, "&")
	}
	return path, cut
}

// upToProxy returns a path without what follows the part proxy, the first one from an index on. A path that does not show this part, because slashes in it
// are escaped, is left out.
func upToProxy(path string, from int, asked bool) (_ string, cut bool) {
	parts := strings.Split(path, "/")
	for i := from; i < len(parts); i++ {
		if part, err := url.PathUnescape(parts[i]); err == nil && part == "proxy" {
			return strings.Join(parts[:i+1], "/"), asked || i+1 < len(parts)
		}
	}
	return "", true
}
