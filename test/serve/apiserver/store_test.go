package apiserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/kubebridge/internal/past/mirror/store"
	"github.com/kubebridge/kubebridge/pkg/event"
)

var scheme = newScheme()

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	utilruntime.Must(example.AddToScheme(s))
	utilruntime.Must(examplev1.AddToScheme(s))
	return s
}

// prefix is that of the keys of all pods.
const prefix = "/pods/"

// errNoPath is returned for keys that no path of the Kubernetes API has.
var errNoPath = errors.New("no path of the API has this key")

// server implements [storage.Interface] with the requests of a client of bridge serve. Writes go to the bus that it reads.
type server struct {
	namespaced  bool
	client      *rest.RESTClient
	transformer value.Transformer // see UpdatePrefixTransformer
	arrivals    arrivals

	mu   sync.Mutex // of what follows
	bus  *bus
	held map[store.Name]*held
	uids int
}

// held is an object of the cluster.
type held struct {
	pod *example.Pod
	uid string
}

func newServer(t *testing.T, namespaced bool) *server {
	t.Helper()
	s := &server{namespaced: namespaced, bus: newBus(t, namespaced), held: map[store.Name]*held{}}
	s.arrivals = arrivals{of: map[*watching]uint64{}, changed: make(chan struct{})}
	config := &rest.Config{Host: s.bus.url, APIPath: "/api", QPS: -1, WarningHandler: rest.NoWarnings{}}
	config.GroupVersion, config.NegotiatedSerializer = &schema.GroupVersion{Version: "v1"}, serializer.NewCodecFactory(scheme).WithoutConversion()
	var err error
	s.client, err = rest.RESTClientFor(config)
	s.bus.must(err)
	t.Cleanup(s.client.Client.CloseIdleConnections)
	return s
}

// split returns the namespace and the name that a key has.
func (s *server) split(key string) (name store.Name, err error) {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return name, errNoPath
	}
	var parts []string
	for part := range strings.SplitSeq(rest, "/") {
		if part != "" { // the keys of objects without a namespace may have two slashes
			parts = append(parts, part)
		}
	}
	if !s.namespaced {
		parts = append([]string{""}, parts...)
	}
	switch len(parts) {
	case 2:
		name.Name = parts[1]
		fallthrough
	case 1:
		name.Namespace = parts[0]
		fallthrough
	case 0:
		return name, nil
	}
	return name, errNoPath
}

// collection returns the path of a list or watch, and the name that its field selector requires.
func (s *server) collection(key string, recursive bool) (path, name string, err error) {
	of, err := s.split(key)
	switch {
	case err != nil:
		return "", "", err
	case recursive && of.Name != "", !recursive && strings.HasSuffix(key, "/"): // what is below an object; a directory as an object
		return "", "", errNoPath
	case !recursive && of.Name == "": // an object without a namespace
		of = store.Name{Name: of.Namespace}
	}
	return s.path(store.Name{Namespace: of.Namespace}), of.Name, nil
}

func (s *server) path(of store.Name) string {
	path := "/api/v1"
	if of.Namespace != "" {
		path += "/namespaces/" + of.Namespace
	}
	if path += "/pods"; of.Name != "" {
		path += "/" + of.Name
	}
	return path
}

// request returns a GET request. Errors come at once, also where the answer says when to retry.
func (s *server) request(path string) *rest.Request {
	return s.client.Get().AbsPath(path).MaxRetries(0)
}

// params sets the parameters that lists and watches have in common.
func params(r *rest.Request, name string, o *storage.ListOptions) {
	field := o.Predicate.Field
	if name != "" {
		named := fields.OneTermEqualSelector("metadata.name", name)
		if field == nil {
			field = named
		} else {
			field = fields.AndSelectors(named, field)
		}
	}
	if field != nil {
		param(r, "fieldSelector", field.String())
	}
	if o.Predicate.Label != nil {
		param(r, "labelSelector", o.Predicate.Label.String())
	}
	param(r, "resourceVersion", o.ResourceVersion)
	param(r, "resourceVersionMatch", string(o.ResourceVersionMatch))
}

// answer returns the body of an answer, or the error that it is.
func answer(r rest.Result) ([]byte, error) {
	if err := r.Error(); err != nil {
		return nil, err
	}
	return r.Raw()
}

func param(r *rest.Request, name, text string) {
	if text != "" {
		r.Param(name, text)
	}
}

// failed returns an error of the API as one of a storage.
func failed(key string, err error) error {
	if apierrors.IsNotFound(err) {
		return storage.NewKeyNotFoundError(key, 0)
	}
	return err
}

// decode reads a pod.
func decode(text []byte, into *example.Pod) error {
	var pod examplev1.Pod
	if err := json.Unmarshal(text, &pod); err != nil {
		return err
	}
	*into = example.Pod{}
	return scheme.Convert(&pod, into, nil)
}

func (s *server) Get(ctx context.Context, key string, o storage.GetOptions, out runtime.Object) error {
	of, err := s.split(key)
	if err != nil {
		return err
	}
	if of.Name == "" {
		of = store.Name{Name: of.Namespace}
	}
	r := s.request(s.path(of))
	param(r, "resourceVersion", o.ResourceVersion)
	text, err := answer(r.Do(ctx))
	switch {
	case apierrors.IsNotFound(err) && o.IgnoreNotFound:
		return runtime.SetZeroValue(out)
	case err != nil:
		return failed(key, err)
	}
	return decode(text, out.(*example.Pod))
}

// list is an answer.
type list struct {
	metav1.ListMeta `json:"metadata"`
	Items           []json.RawMessage `json:"items"`
}

func (s *server) GetList(ctx context.Context, key string, o storage.ListOptions, out runtime.Object) error {
	path, name, err := s.collection(key, o.Recursive)
	if err != nil {
		return err
	}
	from := ""
	if o.Predicate.Continue != "" {
		if from, err = s.tokenOf(o.Predicate.Continue, key); err != nil {
			return err
		}
	}
	l, err := s.list(ctx, path, name, from, &o)
	if err != nil {
		var status *apierrors.StatusError
		if errors.As(err, &status) && status.ErrStatus.Continue != "" {
			if status.ErrStatus.Continue, err = s.continueOf(status.ErrStatus.Continue, key); err != nil {
				return err
			}
			return status
		}
		if apierrors.IsResourceExpired(err) { // the API server has these words; bridge serve says why
			return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old: " + err.Error())
		}
		return failed(key, err)
	}
	into := out.(*example.PodList)
	*into = example.PodList{ListMeta: l.ListMeta, Items: make([]example.Pod, len(l.Items))}
	for i, text := range l.Items {
		if err := decode(text, &into.Items[i]); err != nil {
			return err
		}
		if s.transformer == nil {
			continue
		}
		if _, _, err := s.transformer.TransformFromStorage(ctx, nil, value.DefaultContext(key)); err != nil {
			return err
		}
	}
	if l.Continue == "" {
		return nil
	}
	if into.RemainingItemCount != nil {
		return errors.New("bridge serve answers remainingItemCount: docs/serve.md says that it does not")
	}
	if o.Predicate.Empty() { // the tests compare the number of items behind the page: read them
		rest := o
		rest.ResourceVersion, rest.ResourceVersionMatch, rest.Predicate.Limit = "", "", 0
		behind, err := s.list(ctx, path, name, l.Continue, &rest)
		if err != nil {
			return err
		}
		n := int64(len(behind.Items))
		into.RemainingItemCount = &n
	}
	into.Continue, err = s.continueOf(l.Continue, key)
	return err
}

// list requests a list from a token of bridge serve on.
func (s *server) list(ctx context.Context, path, name, from string, o *storage.ListOptions) (l list, err error) {
	r := s.request(path)
	params(r, name, o)
	param(r, "continue", from)
	if o.Predicate.Limit > 0 {
		param(r, "limit", strconv.FormatInt(o.Predicate.Limit, 10))
	}
	text, err := answer(r.Do(ctx))
	if err != nil {
		return l, err
	}
	return l, json.Unmarshal(text, &l)
}

// continueToken is the content of a continue token of bridge serve. The tests make tokens as the API server has them, and compare them.
type continueToken struct {
	List            string
	Copy            string
	At              store.Position
	Namespace, Name string
	Newest          bool `json:",omitzero"`
}

// tokenOf returns the token of bridge serve for one of the API server.
func (s *server) tokenOf(text, key string) (string, error) {
	directory := strings.TrimSuffix(key, "/") + "/"
	from, version, err := storage.DecodeContinue(text, directory)
	if err != nil {
		return "", apierrors.NewBadRequest(err.Error())
	}
	from, behind := strings.CutSuffix(from, "\x00")
	id, err := s.bus.mirror.Store().ID()
	if err != nil {
		return "", err
	}
	t := continueToken{List: pods.Cluster + "/" + pods.Name + "/at", Copy: id, Newest: version < 0}
	if !t.Newest {
		t.At = store.Position{Era: 1, Version: uint64(version), Seq: math.MaxUint64}
		if served := s.bus.mirror.Resource(pods).Served; served.Version == t.At.Version {
			t.At = served
		}
	}
	of, err := s.split(from)
	if err != nil { // not the name of an object
		of = store.Name{Namespace: strings.Trim(strings.TrimPrefix(directory, prefix), "/"), Name: strings.TrimPrefix(from, directory)}
	}
	if t.Namespace, t.Name = of.Namespace, of.Name; !behind && t.Name != "" { // the page begins with this name: end behind those that are lower
		last := len(t.Name) - 1
		t.Name = t.Name[:last] + string(t.Name[last]-1) + "\uffff"
	}
	encoded, err := json.Marshal(t)
	return base64.RawURLEncoding.EncodeToString(encoded), err
}

// continueOf returns the API server's form of a token of bridge serve.
func (s *server) continueOf(text, key string) (string, error) {
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return "", err
	}
	var t continueToken
	if err := json.Unmarshal(decoded, &t); err != nil {
		return "", err
	}
	version := int64(t.At.Version)
	if t.Newest {
		version = -1
	}
	last := prefix
	if t.Namespace != "" {
		last += t.Namespace + "/"
	}
	return storage.EncodeContinue(last+t.Name+"\x00", strings.TrimSuffix(key, "/")+"/", version)
}

// watching is an open watch.
type watching struct {
	events chan watch.Event
	stop   context.CancelFunc
	path   string
}

func (w *watching) ResultChan() <-chan watch.Event { return w.events }
func (w *watching) Stop()                          { w.stop() }

const (
	// buffered is how many events wait for a reader. The API server's cache has buffers, too.
	buffered = 100
	// lastBookmark is how long before the deadline of a watch the API server sends the last bookmark. bridge serve sends it at the deadline.
	lastBookmark = 2 * time.Second
)

func (s *server) Watch(ctx context.Context, key string, o storage.ListOptions) (watch.Interface, error) {
	path, name, err := s.collection(key, o.Recursive || strings.HasSuffix(key, "/"))
	if err != nil {
		return nil, err
	}
	if o.SendInitialEvents != nil { // the API requires it
		o.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	r := s.request(path).Param("watch", "true")
	params(r, name, &o)
	if o.Predicate.AllowWatchBookmarks {
		r.Param("allowWatchBookmarks", "true")
	}
	if o.SendInitialEvents != nil {
		r.Param("sendInitialEvents", strconv.FormatBool(*o.SendInitialEvents))
	}
	if until, ok := ctx.Deadline(); ok { // the API server makes the deadline of timeoutSeconds
		r.Param("timeoutSeconds", fmt.Sprintf("%.0f", max(1, (time.Until(until)-lastBookmark).Seconds())))
	}
	w := &watching{events: make(chan watch.Event, buffered), path: path}
	ctx, w.stop = context.WithCancel(ctx)
	body, err := r.Stream(ctx)
	if err != nil {
		w.stop()
		return nil, failed(key, err)
	}
	s.arrivals.set(w, 0)
	go func() {
		defer close(w.events)
		defer s.arrivals.remove(w)
		defer body.Close()
		defer w.stop()
		for decoder := json.NewDecoder(body); ; {
			e, err := next(decoder)
			if err != nil { // the end
				return
			}
			select {
			case w.events <- e:
			case <-ctx.Done():
				return
			}
			if version, err := s.Versioner().ObjectResourceVersion(e.Object); err == nil {
				s.arrivals.set(w, version)
			}
		}
	}()
	return w, nil
}

// arrivals are the resourceVersions of the last events of the open watches.
type arrivals struct {
	mu      sync.Mutex
	of      map[*watching]uint64
	changed chan struct{} // closed at the next change
}

func (a *arrivals) set(w *watching, version uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of[w] = version
	a.signal()
}

func (a *arrivals) remove(w *watching) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, w)
	a.signal()
}

func (a *arrivals) signal() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// wait waits until the watches of a path have an event of a version or a later one.
func (a *arrivals) wait(ctx context.Context, path string, version uint64) error {
	for {
		a.mu.Lock()
		changed, behind := a.changed, false
		for w, arrived := range a.of {
			behind = behind || w.path == path && arrived < version
		}
		a.mu.Unlock()
		if !behind {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// arrived is a server for tests that wait only for a short time for events of their watches, which select all objects of a namespace: a created object has
// arrived at them when Create returns. The tests of the API server's cache have such a storage, too.
type arrived struct{ *server }

func (s arrived) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	if err := s.server.Create(ctx, key, obj, out, ttl); err != nil {
		return err
	}
	version, err := s.Versioner().ObjectResourceVersion(out)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wait.ForeverTestTimeout)
	defer cancel()
	return s.arrivals.wait(ctx, s.path(store.Name{Namespace: out.(*example.Pod).Namespace}), version)
}

// next reads an event of a watch.
func next(d *json.Decoder) (e watch.Event, err error) {
	var raw struct {
		Type   watch.EventType
		Object json.RawMessage
	}
	if err := d.Decode(&raw); err != nil {
		return e, err
	}
	if e.Type = raw.Type; e.Type == watch.Error {
		status := &metav1.Status{}
		e.Object = status
		return e, json.Unmarshal(raw.Object, status)
	}
	pod := &example.Pod{}
	e.Object = pod
	return e, decode(raw.Object, pod)
}

func (s *server) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

func (s *server) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	l, err := s.list(ctx, s.path(store.Name{}), "", "", &storage.ListOptions{Predicate: storage.SelectionPredicate{Limit: 1}})
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(l.ResourceVersion, 10, 64)
}

// CompactRevision returns the resourceVersion before which bridge serve has deleted the history.
func (s *server) CompactRevision() int64 { return int64(s.bus.mirror.Resource(pods).Floor.Version) }

func (s *server) Stats(context.Context) (storage.Stats, error) {
	return storage.Stats{}, errors.ErrUnsupported
}
func (s *server) ReadinessCheck() error                      { return nil }
func (s *server) RequestWatchProgress(context.Context) error { return errors.ErrUnsupported }

func (s *server) EnableResourceSizeEstimation(storage.KeysFunc) error { return errors.ErrUnsupported }

func (s *server) Create(_ context.Context, key string, obj, out runtime.Object, _ uint64) error {
	name, err := s.split(key)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[name] != nil {
		return storage.NewKeyExistsError(key, 0)
	}
	s.put(name, obj.(*example.Pod), out)
	return nil
}

// put publishes a new state of an object, and copies it to out.
func (s *server) put(name store.Name, pod *example.Pod, out runtime.Object) {
	h, t := s.held[name], event.Modified
	if h == nil {
		s.uids++
		h, t = &held{uid: fmt.Sprint("u-", s.uids)}, event.Added
		s.held[name] = h
	}
	s.bus.version++
	h.pod = pod.DeepCopy()
	h.pod.ResourceVersion = strconv.FormatUint(s.bus.version, 10)
	s.bus.object(t, name, h.uid, h.pod, "")
	h.pod.DeepCopyInto(out.(*example.Pod))
}

func (s *server) Delete(ctx context.Context, key string, out runtime.Object, p *storage.Preconditions, validate storage.ValidateObjectFunc, _ runtime.Object, _ storage.DeleteOptions) error {
	name, err := s.split(key)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[name]
	if h == nil {
		return storage.NewKeyNotFoundError(key, 0)
	}
	if err := p.Check(key, h.pod); err != nil {
		return err
	}
	if err := validate(ctx, h.pod); err != nil {
		return err
	}
	s.bus.version++
	last := h.pod.DeepCopy()
	last.ResourceVersion = strconv.FormatUint(s.bus.version, 10)
	s.bus.object(event.Deleted, name, h.uid, last, h.pod.ResourceVersion)
	delete(s.held, name)
	last.DeepCopyInto(out.(*example.Pod))
	return nil
}

func (s *server) GuaranteedUpdate(_ context.Context, key string, out runtime.Object, ignoreNotFound bool, p *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object) error {
	name, err := s.split(key)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := &example.Pod{}
	if h := s.held[name]; h != nil {
		now = h.pod.DeepCopy()
	} else if !ignoreNotFound {
		return storage.NewKeyNotFoundError(key, 0)
	}
	if err := p.Check(key, now); err != nil {
		return err
	}
	version, err := s.Versioner().ObjectResourceVersion(now)
	if err != nil {
		return err
	}
	changed, _, err := update(now.DeepCopy(), storage.ResponseMeta{ResourceVersion: version})
	if err != nil {
		return err
	}
	pod := changed.(*example.Pod).DeepCopy()
	if pod.ResourceVersion = now.ResourceVersion; s.held[name] != nil && reflect.DeepEqual(pod, now) {
		now.DeepCopyInto(out.(*example.Pod))
		return nil
	}
	s.put(name, pod, out)
	return nil
}

// increase makes the resourceVersion of the cluster higher without a change of a pod.
func (s *server) increase(context.Context, *testing.T) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bus.version++
	s.bus.synced(event.ReasonPeriodic)
	return int64(s.bus.version)
}

// compact deletes the history before a resourceVersion. As with etcd, the resourceVersion of the cluster is higher then.
func (s *server) compact(ctx context.Context, t *testing.T, version string) {
	v, err := s.Versioner().ParseResourceVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.bus.trim(v)
	s.mu.Unlock()
	s.increase(ctx, t)
}

// UpdatePrefixTransformer makes f's transformer see each item of a list as it is decoded. So a test changes objects while it reads a list.
func (s *server) UpdatePrefixTransformer(f storagetesting.PrefixTransformerModifier) func() {
	s.transformer = f(storagetesting.NewPrefixTransformer(nil, false))
	return func() { s.transformer = nil }
}

var _ storagetesting.InterfaceWithPrefixTransformer = &server{}
