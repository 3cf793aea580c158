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
// command of exec and other parameters that are not of the API, and what follows the subresource proxy. cut says that something is left out.
func withoutContent(uri, subresource string) (_ string, cut bool) {
	path, query, asked := strings.Cut(uri, "?")
	if subresource == "proxy" {
		parts := strings.Split(path, "/")
		for i := 5; i < len(parts)-1; i++ { // /api/v1/nodes/NAME/proxy/…
			if parts[i] == "proxy" {
				path, cut = strings.Join(parts[:i+1], "/"), true
				break
			}
		}
		return path, cut || asked
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
