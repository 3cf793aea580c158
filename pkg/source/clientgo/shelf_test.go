package clientgo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// shelf is a cache.ListerWatcher without an API server: it keeps ConfigMaps in
// memory, hands out its own objects, and keeps the API's conventions.
type shelf struct {
	mu      sync.Mutex
	rv      int
	objects map[string]*corev1.ConfigMap
	log     []watch.Event
	oldest  int // a watch may start from here on
	open    map[*watch.RaceFreeFakeWatcher]bool

	pageSize int                            // 0: it knows no pages
	limits   []int64                        // of lists that are no probes
	asked    []string                       // "list", "more <token>", "watch <rv>"
	fail     func(asked string) error       // may be nil
	alter    func(runtime.Object)           // changes lists on their way out; may be nil
	opened   func(watch.Interface)          // may be nil
	encodeAs func(*corev1.ConfigMap) object // what is handed out; nil: the ConfigMap
}

type object interface {
	runtime.Object
	metav1.Object
}

func newShelf(rv int, names ...string) *shelf {
	s := &shelf{rv: rv, objects: map[string]*corev1.ConfigMap{}, open: map[*watch.RaceFreeFakeWatcher]bool{}}
	for _, name := range names {
		s.put(name)
	}
	s.oldest = s.rv
	return s
}

// put adds or modifies one object.
func (s *shelf) put(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	kind := watch.Modified
	if s.objects[name] == nil {
		kind = watch.Added
	}
	s.objects[name] = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "s", UID: "uid-1", ResourceVersion: strconv.Itoa(s.rv),
	}, Data: map[string]string{"text": "<" + name + ">"}}
	s.send(kind, s.objects[name])
}

// remove deletes objects, all at one resourceVersion.
func (s *shelf) remove(names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	for _, name := range names {
		last := s.objects[name].DeepCopy()
		last.ResourceVersion = strconv.Itoa(s.rv)
		delete(s.objects, name)
		s.send(watch.Deleted, last)
	}
}

func (s *shelf) send(kind watch.EventType, o *corev1.ConfigMap) {
	e := watch.Event{Type: kind, Object: o}
	if s.encodeAs != nil {
		e.Object = s.encodeAs(o)
	}
	s.log = append(s.log, e)
	for w := range s.open {
		w.Action(e.Type, e.Object)
	}
}

// say sends an event that is none of an object to every open watch.
func (s *shelf) say(kind watch.EventType, o runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.open {
		w.Action(kind, o)
	}
}

func bookmarkAt(rv string) runtime.Object {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: rv}}
}

// hangUp ends every open watch.
func (s *shelf) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.open {
		w.Stop()
	}
	clear(s.open)
}

// forget makes every resourceVersion before now too old.
func (s *shelf) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest, s.log = s.rv, nil
}

// restore goes back to another history, at rv.
func (s *shelf) restore(rv int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv, s.oldest, s.log = rv, 0, nil
}

func (s *shelf) ask(what string) error {
	s.asked = append(s.asked, what)
	if s.fail == nil {
		return nil
	}
	return s.fail(what)
}

func (s *shelf) askedFor() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func (s *shelf) ListWithContext(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	what := "list"
	switch {
	case o.Continue != "":
		what = "more " + o.Continue
	case o.Limit == 1:
		what = "probe"
	}
	if what != "probe" {
		s.limits = append(s.limits, o.Limit)
	}
	if err := s.ask(what); err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(s.objects))
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.rv)}}
	if i, found := slices.BinarySearch(names, o.Continue); found {
		names = names[i:]
	}
	if s.pageSize > 0 && len(names) > s.pageSize {
		list.Continue = names[s.pageSize]
		names = names[:s.pageSize]
	}
	var all runtime.Object = list
	if s.encodeAs != nil {
		meta := &metav1.PartialObjectMetadataList{ListMeta: list.ListMeta}
		for _, name := range names {
			meta.Items = append(meta.Items, *s.encodeAs(s.objects[name]).(*metav1.PartialObjectMetadata))
		}
		all = meta
	}
	for _, name := range names {
		list.Items = append(list.Items, *s.objects[name])
	}
	if s.alter != nil {
		s.alter(all)
	}
	return all, nil
}

func (s *shelf) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ask("watch " + o.ResourceVersion); err != nil {
		return nil, err
	}
	if !o.AllowWatchBookmarks || o.TimeoutSeconds == nil {
		return nil, apierrors.NewBadRequest("want bookmarks and a timeout")
	}
	from, err := strconv.Atoi(o.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if from < s.oldest {
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, s.oldest))
	}
	w := watch.NewRaceFreeFake()
	for _, e := range s.log {
		if rv, _ := strconv.Atoi(e.Object.(object).GetResourceVersion()); rv > from {
			w.Action(e.Type, e.Object)
		}
	}
	s.open[w] = true
	context.AfterFunc(ctx, w.Stop)
	if s.opened != nil {
		s.opened(w)
	}
	return w, nil
}

// List and Watch are what a cache.ListerWatcher must have.
func (s *shelf) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

func (s *shelf) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}
