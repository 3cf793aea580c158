package audit

import "testing"

// A URI shows what the API is asked for, and nothing of what goes on to a container, a pod, a service or a node.
func TestURIsWithoutContent(t *testing.T) {
	const pod = "/api/v1/namespaces/shop/pods/db-0"
	for _, c := range []struct {
		uri, verb, subresource, want string
		cut                          bool
	}{
		{"/api/v1/proxy/namespaces/shop/services/web/S3CRET?token=S3CRET", "proxy", "", "/api/v1/proxy", true},
		{"//apis/x/v1/pr%6Fxy/nodes/n/run/proxy/S3CRET", "proxy", "", "//apis/x/v1/pr%6Fxy", true},
		{"/api/v1/proxy/nodes%2Fn/S3CRET", "proxy", "", "/api/v1/proxy", true},
		{"/api/v1%2Fproxy%2Fnodes%2Fn/S3CRET", "proxy", "", "", true},
		{"/api/v1/nodes/n/pr%6Fxy/S3CRET", "get", "proxy", "/api/v1/nodes/n/pr%6Fxy", true},
		{"/api/v1/nodes/n%2Fproxy/S3CRET", "get", "proxy", "", true},
		{"/api/v1/namespaces/proxy/pods/proxy", "get", "", "/api/v1/namespaces/proxy/pods/proxy", false},
		{pod, "get", "", pod, false},
		{pod + "?fieldManager=kubectl&dry%52un=%41ll&force=true", "get", "", pod + "?fieldManager=kubectl&dry%52un=%41ll&force=true", false},
		{"/api/v1/pods?labelSelector=app%3Dweb&watch=1&", "get", "", "/api/v1/pods?labelSelector=app%3Dweb&watch=1", false},
		{pod + "/exec?command=mysql&command=-pS3CRET&container=db&stdin=true", "get", "exec", pod + "/exec?container=db&stdin=true", true},
		{pod + "/exec?c%6Fmmand=S3CRET", "get", "exec", pod + "/exec", true},
		{pod + "/log?S3CRET", "get", "log", pod + "/log", true},
		{pod + "/attach?%zz=S3CRET", "get", "attach", pod + "/attach", true},
		{pod + "/proxy/login/S3CRET?token=S3CRET&watch=S3CRET", "get", "proxy", pod + "/proxy", true},
		{pod + "/proxy?watch=S3CRET", "get", "proxy", pod + "/proxy", true},
		{"/api/v1/nodes/n/proxy/run/S3CRET", "get", "proxy", "/api/v1/nodes/n/proxy", true},
		{"/api/v1/namespaces/proxy/services/https:web:443/proxy/S3CRET", "get", "proxy", "/api/v1/namespaces/proxy/services/https:web:443/proxy", true},
	} {
		if got, cut := withoutContent(c.uri, c.verb, c.subresource); got != c.want || cut != c.cut {
			t.Errorf("%s: %s, cut %t, want %s, %t", c.uri, got, cut, c.want, c.cut)
		}
	}
}
