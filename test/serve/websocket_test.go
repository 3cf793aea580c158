package serve

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// socket opens a WebSocket as a page of the server does, with a token or a certificate. The answer is that of the handshake.
func (w *world) socket(config *rest.Config, path, token string) (*websocket.Conn, *http.Response, error) {
	w.t.Helper()
	dialer := &websocket.Dialer{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if strings.HasPrefix(config.Host, "https://") {
		var err error
		dialer.TLSClientConfig, err = rest.TLSConfigFor(config)
		w.must(err)
	}
	if token != "" {
		dialer.Subprotocols = []string{"base64.binary.k8s.io", "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))}
	}
	c, answer, err := dialer.DialContext(w.ctx, "ws"+strings.TrimPrefix(config.Host, "http")+path, http.Header{"Origin": {config.Host}})
	if answer != nil {
		_ = answer.Body.Close()
	}
	if err == nil {
		w.t.Cleanup(func() { _ = c.Close() })
	}
	return c, answer, err
}

// messages reads what a watch sends, until it has n messages or is closed: the last message is then the code of the close frame. Field managers, which
// are not on the bus, texts of errors, and the order of fields do not count.
func (w *world) messages(c *websocket.Conn, n int) (all []string) {
	w.t.Helper()
	for len(all) < n {
		kind, text, err := c.ReadMessage()
		var closed *websocket.CloseError
		if errors.As(err, &closed) {
			return append(all, fmt.Sprintf("closed: %d", closed.Code))
		}
		w.must(err)
		var event struct {
			Type   string         `json:"type"`
			Object map[string]any `json:"object"`
		}
		w.must(json.Unmarshal(text, &event))
		if metadata, ok := event.Object["metadata"].(map[string]any); ok {
			delete(metadata, "managedFields")
		}
		if event.Type == "ERROR" {
			delete(event.Object, "message")
		}
		object, err := json.Marshal(event.Object)
		w.must(err)
		all = append(all, fmt.Sprintf("frame type %d, ends with a line break: %t, %s %s", kind, strings.HasSuffix(string(text), "\n"), event.Type, object))
	}
	return all
}

// Pages in browsers watch over WebSockets: they get from `bridge serve` the frames that the API server sends, and the same errors.
func TestWebSocket(t *testing.T) {
	if err := cluster.Restart(t.Context()); err != nil { // so that the API server has no changes from before
		t.Fatal(err)
	}
	w := newWorld(t)
	w.change(0)
	w.ready()
	atReal, atServed := w.clients()
	client, err := kubernetes.NewForConfig(atServed)
	w.must(err)
	list, err := client.CoreV1().ConfigMaps(w.ns).List(w.ctx, metav1.ListOptions{})
	w.must(err)
	var watches []func()
	for _, x := range []struct {
		query string
		n     int
	}{
		{"resourceVersion=" + list.ResourceVersion, 10},                     // the changes
		{"labelSelector=tier%3Dweb", 3 + 10},                                // the objects that exist, and the changes of a selection
		{"timeoutSeconds=1&resourceVersion=" + list.ResourceVersion, 1},     // the end
		{"resourceVersion=1", 2},                                            // an error, and the end
		{"resourceVersion=" + list.ResourceVersion + "&fieldSelector=a", 0}, // no WebSocket
	} {
		path := "/api/v1/namespaces/" + w.ns + "/configmaps?watch=1&" + x.query
		real, realAnswer, realErr := w.socket(atReal, path, "")
		served, servedAnswer, servedErr := w.socket(atServed, path, "")
		if realAnswer == nil || servedAnswer == nil || realAnswer.StatusCode != servedAnswer.StatusCode || (realErr == nil) != (x.n > 0) {
			t.Fatalf("%s: the API server answers %+v (%v), and bridge serve %+v (%v)", x.query, realAnswer, realErr, servedAnswer, servedErr)
		}
		if x.n == 0 {
			continue
		}
		watches = append(watches, func() {
			want := w.messages(real, x.n)
			if diff := cmp.Diff(want, w.messages(served, x.n)); diff != "" || len(want) != x.n {
				t.Errorf("%s: %d messages (-API server +bridge serve):\n%s", x.query, len(want), diff)
			}
		})
	}
	w.change(1)
	for _, compare := range watches {
		compare()
	}
}

// A page sends its user's token in a subprotocol.
func TestWebSocketAuth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.createPod("a", "node-1", nil)
	w.ready()
	_, token := w.reader()
	address, cert := w.serveUsers()
	real, served := rest.AnonymousClientConfig(cluster.RESTConfig()), &rest.Config{Host: address, TLSClientConfig: rest.TLSClientConfig{CAFile: cert}}
	path := "/api/v1/namespaces/" + w.ns + "/pods?watch=1"
	var atReal, atServed *websocket.Conn
	w.eventually("the reader is known", func() string {
		for config, to := range map[*rest.Config]**websocket.Conn{real: &atReal, served: &atServed} {
			c, answer, err := w.socket(config, path, token)
			if err != nil {
				return fmt.Sprintf("%s: %v (%+v)", config.Host, err, answer)
			}
			*to = c
		}
		return ""
	})
	if got := atServed.Subprotocol(); got != atReal.Subprotocol() || got == "" {
		t.Errorf("the subprotocol is %q, and %q of the API server", got, atReal.Subprotocol())
	}
	if diff := cmp.Diff(w.messages(atReal, 1), w.messages(atServed, 1)); diff != "" {
		t.Errorf("the first message (-API server +bridge serve):\n%s", diff)
	}
	for _, x := range []struct {
		path, token string
		want        int
	}{{path, token + "x", 401}, {"/api/v1/namespaces/" + w.ns + "/configmaps?watch=1", token, 403}} {
		for _, config := range []*rest.Config{real, served} {
			if _, answer, err := w.socket(config, x.path, x.token); err == nil || answer == nil || answer.StatusCode != x.want {
				t.Errorf("%s%s: %+v (%v), want %d", config.Host, x.path, answer, err, x.want)
			}
		}
	}
}
