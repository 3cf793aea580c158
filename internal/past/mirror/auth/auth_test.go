package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap/zaptest"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// cluster is an API server that knows the token of ann, who may list pods in the namespace shop.
type cluster struct {
	t       *testing.T
	asked   atomic.Int32
	away    atomic.Bool
	refuses atomic.Bool // questions of bridge serve
	revoked atomic.Bool
	uid     atomic.Pointer[string] // nil: that of the bus
	secret  atomic.Bool            // the UID may not be read
}

func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.away.Load() {
		return nil, errors.New("connection refused")
	}
	c.asked.Add(1)
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	if c.refuses.Load() {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: 403, Reason: metav1.StatusReasonForbidden})
		return w.Result(), nil
	}
	w.WriteHeader(http.StatusCreated)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		c.t.Error(err)
	}
	var to any
	switch r.URL.Path {
	case "/apis/authentication.k8s.io/v1/tokenreviews":
		var review authenticationv1.TokenReview
		err = json.Unmarshal(body, &review)
		if review.Status.Authenticated = review.Spec.Token == "ann's"; review.Status.Authenticated {
			review.Status.User = authenticationv1.UserInfo{Username: "ann", UID: "u", Groups: []string{"shoppers"}, Extra: map[string]authenticationv1.ExtraValue{"pod": {"a"}}}
		}
		to = review
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		var review authorizationv1.SubjectAccessReview
		err = json.Unmarshal(body, &review)
		s := review.Spec
		switch {
		case c.revoked.Load():
			review.Status.Reason = "no more"
		case s.NonResourceAttributes != nil:
			review.Status.Allowed = s.NonResourceAttributes.Path == "/api" && slices.Contains(s.Groups, authenticated)
		default:
			a := s.ResourceAttributes
			review.Status.Allowed = s.User == "ann" && s.UID == "u" && s.Extra["pod"][0] == "a" && slices.Equal(s.Groups, []string{"shoppers", authenticated}) &&
				a.Verb == "list" && a.Resource == "pods" && a.Namespace == "shop"
			review.Status.Denied = a.Version == "denied"
		}
		to = review
	case "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews":
		var review authorizationv1.SelfSubjectRulesReview
		err = json.Unmarshal(body, &review)
		if r.Header.Get("Authorization") != "Bearer ann's" || c.revoked.Load() {
			w = httptest.NewRecorder()
			w.WriteHeader(http.StatusUnauthorized)
			return w.Result(), nil
		}
		review.Status.ResourceRules = []authorizationv1.ResourceRule{{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}}}
		review.Status.EvaluationError = "in " + review.Spec.Namespace
		to = review
	default:
		c.t.Errorf("asked for %s", r.URL.Path)
	}
	if err == nil {
		err = json.NewEncoder(w).Encode(to)
	}
	if err != nil {
		c.t.Error(err)
	}
	return w.Result(), nil
}

func (c *cluster) config() *rest.Config {
	return &rest.Config{Host: "http://kubernetes", Transport: c, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

// source returns the source of a bus with events of the cluster u.
func (c *cluster) source(bus func() string) *Source {
	return NewSource(SourceOptions{Cluster: "prod", BusUID: bus, Log: zaptest.NewLogger(c.t), APIServerUID: func(context.Context) (string, error) {
		uid := c.uid.Load()
		switch {
		case c.away.Load():
			return "", errors.New("connection refused")
		case c.secret.Load():
			return "", fmt.Errorf("get namespace kube-system: %w", apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "kube-system", errors.New("no")))
		case uid != nil:
			return *uid, nil
		}
		return "u", nil
	}})
}

func (c *cluster) guard() *Guard {
	c.t.Helper()
	from := c.source(func() string { return "u" })
	tokens, err := NewTokens(c.config(), from)
	if err != nil {
		c.t.Fatal(err)
	}
	reviews, err := NewReviews(c.config(), c.config(), from)
	if err != nil {
		c.t.Fatal(err)
	}
	return NewGuard(Options{Tokens: tokens, Authorizer: reviews, Log: zaptest.NewLogger(c.t)})
}

func request(authorization string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return r
}

// code returns the code and the message of an answer.
func code(err error) string {
	if err == nil {
		return "200"
	}
	var st apierrors.APIStatus
	if !errors.As(err, &st) {
		return "500 " + err.Error()
	}
	return fmt.Sprintf("%d %s", st.Status().Code, st.Status().Message)
}

var shopPods = Attributes{Cluster: "prod", Verb: "list", Version: "v1", Resource: "pods", Namespace: "shop"}

// TestGuard: a cluster says who the user of a token is and what the user may read. Without its answer nobody reads anything, and an answer does
// not count for long.
func TestGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t}
		g := c.guard()
		everywhere, secret, other, veto := shopPods, shopPods, shopPods, shopPods
		everywhere.Namespace, secret.Name, secret.Verb, other.Cluster, veto.Version = "", "web", "get", "test", "denied"
		for _, x := range []struct {
			authorization string
			a             Attributes
			want          string
			asked         int32
		}{
			{"Bearer ann's", shopPods, "200", 2},
			{"bearer  ann's ", shopPods, "200", 0},
			{"Bearer ann's", everywhere, `403 pods is forbidden: User "ann" cannot list resource "pods" in API group "" at the cluster scope`, 1},
			{"Bearer ann's", everywhere, `403 pods is forbidden: User "ann" cannot list resource "pods" in API group "" at the cluster scope`, 0},
			{"Bearer ann's", secret, `403 pods "web" is forbidden: User "ann" cannot get resource "pods" in API group "" in the namespace "shop"`, 1},
			{"Bearer ann's", veto, `403 pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "shop"`, 1},
			{"Bearer ann's", Attributes{Cluster: "prod", Verb: "get", Path: "/api"}, "200", 1},
			{"Bearer ann's", Attributes{Cluster: "prod", Verb: "get", Path: "/metrics"}, `403 forbidden: User "ann" cannot get path "/metrics"`, 1},
			{"Bearer ann's", other, `403 pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "shop": the token is of cluster "prod", and the request is for cluster "test"`, 0},
			{"Bearer eve's", shopPods, "401 Unauthorized", 1},
			{"Bearer eve's", shopPods, "401 Unauthorized", 0},
			{"Basic YTpi", shopPods, "401 Unauthorized", 0},
			{"Bearer ", shopPods, "401 Unauthorized", 0},
			{"", shopPods, "401 Unauthorized", 0},
		} {
			before := c.asked.Load()
			if got := code(g.Check(request(x.authorization), &x.a)); got != x.want || c.asked.Load()-before != x.asked {
				t.Errorf("%q, %+v: %s after %d questions", x.authorization, x.a, got, c.asked.Load()-before)
			}
		}
		c.revoked.Store(true)
		time.Sleep(allowedTTL)
		if got := code(g.Check(request("Bearer ann's"), &shopPods)); !strings.HasSuffix(got, `in the namespace "shop": no more`) {
			t.Errorf("with a revoked right: %s", got)
		}
		c.revoked.Store(false)
		time.Sleep(refusedTTL)
		if got := code(g.Check(request("Bearer ann's"), &shopPods)); got != "200" {
			t.Errorf("with the right again: %s", got)
		}
		c.away.Store(true)
		if got := code(g.Check(request("Bearer ann's"), &shopPods)); got != "200" {
			t.Errorf("an answer is forgotten at once: %s", got)
		}
		time.Sleep(allowedTTL)
		want := `503 it is not known now which cluster is asked: the API server of cluster "prod" does not answer`
		if got := code(g.Check(request("Bearer ann's"), &shopPods)); got != want {
			t.Errorf("without the API server: %s", got)
		}
		c.away.Store(false)
		time.Sleep(sourceRetry)
		c.refuses.Store(true)
		if got := code(g.Check(request("Bearer ann's"), &shopPods)); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, "system:auth-delegator") {
			t.Errorf("without rights of its own: %s", got)
		}
	})
}

// TestTokenOfSubprotocol: browsers send the token of a WebSocket in a subprotocol. It counts only there, and as at the API server.
func TestTokenOfSubprotocol(t *testing.T) {
	g := (&cluster{t: t}).guard()
	const ann, eve = "base64url.bearer.authorization.k8s.io.YW5uJ3M", "base64url.bearer.authorization.k8s.io.ZXZlJ3M"
	for _, x := range []struct{ upgrade, connection, authorization, protocols, want string }{
		{"websocket", "Upgrade", "", ann + ", base64.binary.k8s.io", "200"},
		{"WebSocket", "keep-alive, upgrade", "", "base64.binary.k8s.io," + ann, "200"},
		{"websocket", "Upgrade", "Bearer ann's", "base64.binary.k8s.io", "200"},
		{"websocket", "Upgrade", "", eve + ", base64.binary.k8s.io", "401 Unauthorized"},
		{"websocket", "Upgrade", "", ann, "401 Unauthorized"},
		{"websocket", "Upgrade", "", ann + "," + ann + ",base64.binary.k8s.io", "401 Unauthorized"},
		{"websocket", "Upgrade", "", ann + "=,base64.binary.k8s.io", "401 Unauthorized"},
		{"websocket", "Upgrade", "", "base64.binary.k8s.io", "401 Unauthorized"},
		{"", "", "", ann + ", base64.binary.k8s.io", "401 Unauthorized"},
	} {
		r := request(x.authorization)
		for name, value := range map[string]string{"Upgrade": x.upgrade, "Connection": x.connection, "Sec-WebSocket-Protocol": x.protocols} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if got := code(g.Check(r, &shopPods)); got != x.want {
			t.Errorf("%+v: %s", x, got)
		}
	}
}

// TestOtherCluster: an API server of another cluster than that on the bus is not asked, because its users and rights are others. Nobody is let in
// while it is not known which cluster it is.
func TestOtherCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, bus := &cluster{t: t}, ""
		from := c.source(func() string { return bus })
		tokens, err := NewTokens(c.config(), from)
		if err != nil {
			t.Fatal(err)
		}
		reviews, err := NewReviews(c.config(), c.config(), from)
		if err != nil {
			t.Fatal(err)
		}
		g := NewGuard(Options{Tokens: tokens, Authorizer: reviews, Log: zaptest.NewLogger(t)})
		ann := &User{UserInfo: authenticationv1.UserInfo{Username: "ann", UID: "u", Groups: []string{"shoppers", authenticated}, Extra: map[string]authenticationv1.ExtraValue{"pod": {"a"}}}}
		refused := func(why string) {
			t.Helper()
			if got := code(g.Check(request("Bearer ann's"), &shopPods)); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, why) {
				t.Errorf("a token: %s, want %s", got, why)
			}
			// a user of a client certificate has no cluster to ask for the token
			if st, err := reviews.Review(t.Context(), ann, &shopPods); st.Allowed || err == nil || !strings.Contains(err.Error(), why) {
				t.Errorf("rights: %v %v, want %s", st.Allowed, err, why)
			}
			if n := c.asked.Load(); n != 0 {
				t.Errorf("%d questions were asked", n)
			}
			time.Sleep(allowedTTL)
		}
		refused(`no event of cluster "prod" was read yet`)
		bus = "u"
		c.secret.Store(true)
		refused("bridge serve may not get the namespace kube-system")
		c.secret.Store(false)
		other := "v"
		c.uid.Store(&other)
		refused(`the API server that bridge serve asks is not of cluster "prod" on the bus`)
		if err := from.Confirm(t.Context()); !errors.Is(err, ErrOtherCluster) {
			t.Errorf("at the start: %v", err)
		}
		c.uid.Store(nil)
		time.Sleep(allowedTTL)
		if got := code(g.Check(request("Bearer ann's"), &shopPods)); got != "200" {
			t.Errorf("with the cluster of the bus: %s", got)
		}
		if err := from.Confirm(t.Context()); err != nil {
			t.Errorf("at the start: %v", err)
		}
	})
}

// TestConfirmWaits: the cluster is checked as soon as the bus says which one it has, also if the API server does not answer at first.
func TestConfirmWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t}
		other := "v"
		c.uid.Store(&other)
		c.away.Store(true)
		var bus atomic.Pointer[string]
		bus.Store(new(string))
		done := make(chan error, 1)
		go func() { done <- c.source(func() string { return *bus.Load() }).Confirm(t.Context()) }()
		for _, change := range []func(){func() { uid := "u"; bus.Store(&uid) }, func() { c.away.Store(false) }} {
			time.Sleep(time.Minute)
			select {
			case err := <-done:
				t.Fatalf("it ended with %v", err)
			default:
			}
			change()
		}
		if err := <-done; !errors.Is(err, ErrOtherCluster) {
			t.Errorf("it ended with %v", err)
		}
	})
}

// TestStrangers: tokens that nobody knows do not delay the requests of users that were accepted before, nor tokens from other addresses.
func TestStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t}
		g := c.guard()
		if got := code(g.Check(request("Bearer ann's"), &shopPods)); got != "200" {
			t.Fatal(got)
		}
		time.Sleep(2 * allowedTTL)
		for i := range unknownLimit.burst {
			if got := code(g.Check(request(fmt.Sprint("Bearer ", i)), &shopPods)); got != "401 Unauthorized" {
				t.Errorf("unknown token %d: %s", i, got)
			}
		}
		began := time.Now()
		if got := code(g.Check(request("Bearer another"), &shopPods)); !strings.HasPrefix(got, "429 too many authentication and authorization checks") {
			t.Errorf("one unknown token too many: %s", got)
		}
		elsewhere := request("Bearer another")
		elsewhere.RemoteAddr = "198.51.100.7:1"
		if got := code(g.Check(elsewhere, &shopPods)); got != "401 Unauthorized" {
			t.Errorf("an unknown token from another address: %s", got)
		}
		if got := code(g.Check(request("Bearer ann's"), &shopPods)); got != "200" || time.Since(began) != 0 {
			t.Errorf("ann after unknown tokens: %s, after %s", got, time.Since(began))
		}
	})
}

// TestSelf: a user gets its own name, rights and rules from the cluster, which is asked for the rules with the user's token only. A right
// that is not known is 503, and rules that the cluster does not list are incomplete.
func TestSelf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t}
		g := c.guard()
		ann := request("Bearer ann's")
		u, err := g.User(ann)
		if err != nil || u.Username != "ann" || u.UID != "u" || !slices.Equal(u.Groups, []string{"shoppers", authenticated}) {
			t.Errorf("%+v (%v)", u, err)
		}
		if st, err := g.Review(ann, &shopPods); err != nil || !st.Allowed {
			t.Errorf("%+v (%v)", st, err)
		}
		denied := shopPods
		denied.Version = "denied"
		if st, err := g.Review(ann, &denied); err != nil || !st.Denied {
			t.Errorf("%+v (%v)", st, err)
		}
		rules := func() (authorizationv1.SubjectRulesReviewStatus, error) { return g.Rules(ann, "prod", "shop") }
		if st, err := rules(); err != nil || len(st.ResourceRules) != 1 || st.EvaluationError != "in shop" || st.Incomplete {
			t.Errorf("%+v (%v)", st, err)
		}
		if st, err := g.Rules(ann, "test", "shop"); err != nil || !st.Incomplete || !strings.Contains(st.EvaluationError, `only cluster "prod" is asked`) {
			t.Errorf("of another cluster: %+v (%v)", st, err)
		}
		if st, err := g.Authorizer.Rules(t.Context(), u, &Scope{"prod", "shop", ""}); err != nil || !st.Incomplete || !strings.Contains(st.EvaluationError, "client certificates") {
			t.Errorf("without a token: %+v (%v)", st, err)
		}
		c.revoked.Store(true)
		if _, err := rules(); code(err) != "401 Unauthorized" {
			t.Errorf("with a revoked token: %v", err)
		}
		c.revoked.Store(false)
		c.away.Store(true)
		if _, err := rules(); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("without the cluster: %v", err)
		}
		time.Sleep(2 * allowedTTL)
		if _, err := g.User(ann); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("without the cluster: %v", err)
		}
		if _, err := g.Review(ann, &shopPods); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("without the cluster: %v", err)
		}
		if _, err := g.User(request("")); code(err) != "401 Unauthorized" {
			t.Errorf("without credentials: %v", err)
		}
	})
}

// TestOneUserAsksTooMuch: a user whose requests make many questions necessary does not stop the others, and gets the reason in the error.
func TestOneUserAsksTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := (&cluster{t: t}).guard()
		ask := func(user, name string) (allowed bool, err error) {
			st, err := g.Authorizer.Review(t.Context(), &User{UserInfo: authenticationv1.UserInfo{Username: user, UID: "u", Groups: []string{"shoppers", authenticated}, Extra: map[string]authenticationv1.ExtraValue{"pod": {"a"}}}},
				&Attributes{Cluster: "prod", Verb: "list", Resource: "pods", Namespace: "shop", Name: name})
			return st.Allowed, err
		}
		began := time.Now()
		n := 0
		for ; n < 10*userLimit.burst; n++ {
			if _, err := ask("eve", fmt.Sprint(n)); err != nil {
				if got := code(g.refused(err)); !strings.HasPrefix(got, "429 too many authentication and authorization checks") {
					t.Errorf("question %d: %s", n, got)
				}
				break
			}
		}
		if n != userLimit.burst {
			t.Errorf("one user has asked %d questions", n)
		}
		if allowed, err := ask("ann", ""); !allowed || time.Since(began) != 0 {
			t.Errorf("ann after eve: %v %v after %s", allowed, err, time.Since(began))
		}
		time.Sleep(time.Second)
		if _, err := ask("eve", "later"); err != nil {
			t.Errorf("later: %v", err)
		}
	})
}

// TestSharesAreBounded: many addresses do not use up memory.
func TestSharesAreBounded(t *testing.T) {
	s := newShares(unknownLimit, unknownsLimit)
	for i := range 3 * cacheEntries {
		s.limiterFor(fmt.Sprint(i))
	}
	if len(s.by.Keys()) > cacheEntries {
		t.Errorf("%d shares are kept", len(s.by.Keys()))
	}
}

// TestCacheIsBounded: many answers do not use up memory, and refused ones do not remove accepted ones.
func TestCacheIsBounded(t *testing.T) {
	c := newCache[int]()
	c.put(key{1}, 1, true)
	for i := range 3 * cacheEntries {
		c.put(key{2, byte(i), byte(i >> 8)}, 2, false)
	}
	if v, found, _ := c.get(key{1}); !found || v != 1 || len(c.refused.Keys()) > cacheEntries {
		t.Errorf("%d %v; %d refused", v, found, len(c.refused.Keys()))
	}
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) (*authority, string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, private}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func (a *authority) sign(t *testing.T, usage x509.ExtKeyUsage, name string, groups ...string) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: groups}, NotBefore: a.cert.NotBefore, NotAfter: time.Now().Add(10 * time.Minute),
		ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// onlyUser allows requests of one user with a group.
type onlyUser struct{ user, group string }

func (o onlyUser) Review(_ context.Context, u *User, _ *Attributes) (st authorizationv1.SubjectAccessReviewStatus, err error) {
	st.Allowed = u.Username == o.user && slices.Contains(u.Groups, o.group)
	return st, nil
}

func (o onlyUser) Rules(_ context.Context, u *User, s *Scope) (st authorizationv1.SubjectRulesReviewStatus, err error) {
	st.EvaluationError = fmt.Sprintf("%s in %s by %q", u.Username, s.Namespace, s.Token)
	return st, nil
}

// TestCertificates: the common name is the user, the organizations are the groups. A connection that stays open does not keep a
// certificate valid that has expired, or whose CA was removed.
func TestCertificates(t *testing.T) {
	ca, text := newAuthority(t)
	other, otherText := newAuthority(t)
	path := filepath.Join(t.TempDir(), "ca")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	known, err := NewCertificates(path, zaptest.NewLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(cert *x509.Certificate, a onlyUser) string {
		r := request("")
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
		return code(NewGuard(Options{Certificates: known, Authorizer: a, Log: zaptest.NewLogger(t)}).Check(r, &shopPods))
	}
	ann := ca.sign(t, x509.ExtKeyUsageClientAuth, "ann", "shoppers")
	for _, c := range []struct {
		cert *x509.Certificate
		a    onlyUser
		want string
	}{
		{ann, onlyUser{"ann", "shoppers"}, "200"},
		{ann, onlyUser{"ann", authenticated}, "200"},
		{ann, onlyUser{"bob", authenticated}, "403"},
		{ca.sign(t, x509.ExtKeyUsageClientAuth, anonymous), onlyUser{anonymous, authenticated}, "403"},
		{ca.sign(t, x509.ExtKeyUsageServerAuth, "ann", "shoppers"), onlyUser{"ann", "shoppers"}, "401"},
		{ca.sign(t, x509.ExtKeyUsageClientAuth, "", "shoppers"), onlyUser{"", "shoppers"}, "401"},
		{other.sign(t, x509.ExtKeyUsageClientAuth, "ann", "shoppers"), onlyUser{"ann", "shoppers"}, "401"},
	} {
		if got := ask(c.cert, c.a); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.cert.Subject, got, c.want)
		}
	}
	write("")
	if got := ask(ann, onlyUser{"ann", "shoppers"}); got != "200" {
		t.Errorf("while the file is written: %s", got)
	}
	write(otherText)
	if got := ask(ann, onlyUser{"ann", "shoppers"}); got != "401 Unauthorized" {
		t.Errorf("with another CA: %s", got)
	}
	write(text)
	known.now = func() time.Time { return time.Now().Add(11 * time.Minute) }
	if got := ask(ann, onlyUser{"ann", "shoppers"}); got != "401 Unauthorized" {
		t.Errorf("with an expired certificate: %s", got)
	}
}
