package clientgo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/kubebridge/kubebridge/pkg/event"
	"github.com/kubebridge/kubebridge/pkg/source"
	"github.com/kubebridge/kubebridge/pkg/source/internal/listwatch"
)

// reading is a ListerWatcher's Run under way in a bubble.
type reading struct {
	*recorder
	t      *testing.T
	cancel context.CancelFunc
	done   chan error
	states []source.State // guarded by recorder.mu
}

// read runs lw in the bubble until it rests.
func read(t *testing.T, lw cache.ListerWatcher, from event.Position, change func(*ListerWatcherOptions)) *reading {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	r := &reading{recorder: &recorder{}, t: t, cancel: cancel, done: make(chan error, 1)}
	o := ListerWatcherOptions{Handler: r.recorder, Scheme: scheme.Scheme, OnState: r.state}
	if change != nil {
		change(&o)
	}
	go func() { r.done <- FromListerWatcher(lw, o).Run(ctx, from) }()
	synctest.Wait()
	return r
}

func (r *reading) state(s source.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states = append(r.states, s)
}

func (r *reading) lastState() source.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states[len(r.states)-1]
}

// expect compares what the handler received since the last time.
func (r *reading) expect(want ...string) {
	r.t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, r.received()); diff != "" {
		r.t.Fatalf("received (-want +got):\n%s", diff)
	}
	r.mu.Lock()
	r.lines = nil
	r.mu.Unlock()
}

// end cancels, and returns Run's error.
func (r *reading) end() error {
	r.cancel()
	return <-r.done
}

func (r *reading) endCancelled() {
	r.t.Helper()
	if err := r.end(); !errors.Is(err, context.Canceled) {
		r.t.Errorf("Run returned %v, want the context's error", err)
	}
}

func at(rv string) event.Position { return event.Position{RV: rv} }

func TestListerWatcherListsThenWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(10, "a", "b", "c")
		s.pageSize = 2
		r := read(t, s, event.Position{}, nil)
		r.expect("begun snapshot from ", "listed a@11", "listed b@12", "listed c@13", "ended 13 >13")
		s.put("d")
		s.put("a")
		s.remove("b", "c") // both at 16
		r.expect("added d@14 >13", "modified a@15 >14", "deleted b@16 >15", "deleted c@16 >15")
		s.say(watch.Bookmark, bookmarkAt("16")) // more can come at 16
		s.say(watch.Bookmark, bookmarkAt("20"))
		r.expect("progress 16 >15", "progress 20 >16")
		r.endCancelled()

		if diff := cmp.Diff([]string{"list", "more c", "watch 13"}, s.askedFor()); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
		for _, sig := range r.signals {
			if sig.Object == nil {
				continue
			}
			o, err := source.ParseObject(sig.Object.Raw)
			if err != nil || o.APIVersion != "v1" || o.Kind != "ConfigMap" || o.UID != "uid-1" || o.Namespace != "s" {
				t.Errorf("got %s: %v", sig.Object.Raw, err)
			}
			if sig.Object.Kind != "ConfigMap" || hashOf(sig.Object) != hashOf(&o) {
				t.Errorf("fields and JSON differ: %+v and %+v", sig.Object, o)
			}
		}
		if kind := s.objects["a"].Kind; kind != "" {
			t.Errorf("the lister's own object was changed: it is a %s now", kind)
		}
	})
}

func TestListerWatcherResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(10, "a")
		s.put("b")
		s.put("c")
		r := read(t, s, at("12"), nil)
		r.expect("added c@13 >12")
		s.hangUp() // what is not known to be complete comes again
		time.Sleep(listwatch.FirstRetry)
		r.expect("added c@13 >12")
		r.endCancelled()
	})
}

// A lister with neither contexts nor pages is what client-go accepted for years.
func TestListerWatcherOfOldStyle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(10, "a")
		r := read(t, struct{ cache.ListerWatcher }{s}, event.Position{}, nil)
		s.put("a")
		r.expect("begun snapshot from ", "listed a@11", "ended 11 >11", "modified a@12 >11")
		r.endCancelled()
	})
}

func TestListerWatcherGone(t *testing.T) {
	gone := apierrors.NewResourceExpired("too old")
	for name, cut := range map[string]func(*shelf){
		"at open":       func(s *shelf) { s.forget(); s.hangUp() },
		"in the stream": func(s *shelf) { st := gone.Status(); s.say(watch.Error, &st) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(10, "a")
				r := read(t, s, event.Position{}, nil)
				s.put("b")
				s.put("c") // so that 12 may be resumed from
				r.expect("begun snapshot from ", "listed a@11", "ended 11 >11", "added b@12 >11", "added c@13 >12")
				cut(s)
				r.expect("begun expired from 12", "listed a@11", "listed b@12", "listed c@13", "ended 13 >13")
				s.put("d")
				r.expect("added d@14 >13")
				r.endCancelled()
			})
		})
	}
}

// Empty watches show that the history is lost if they go on, and if probes succeed.
func TestListerWatcherEmptyWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(10, "a")
		s.opened = func(w watch.Interface) { w.Stop() }
		r := read(t, s, at("11"), nil)
		time.Sleep(listwatch.EmptyFor - time.Second)
		r.expect()
		time.Sleep(30 * time.Second)
		if got := r.received(); len(got) < 3 {
			t.Errorf("no list: %v", got)
		} else {
			compare(t, got[:3], []string{"begun expired from 11", "listed a@11", "ended 11 >11"})
		}
		r.endCancelled()
	})
}

// A ListerWatcher that ends every watch after the same event is not asked again at once.
func TestListerWatcherWatchesThatLeadNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(10, "a")
		s.put("b") // at 12, sent by each watch from 11
		s.opened = func(w watch.Interface) { w.Stop() }
		r := read(t, s, at("11"), nil)
		if last := r.lastState(); last.Phase != source.Waiting || !strings.Contains(last.Err.Error(), "from resourceVersion 11 ended at once") {
			t.Errorf("state %+v", last)
		}
		time.Sleep(10 * time.Minute)
		r.endCancelled()
		if n := len(r.received()); n < 15 || n > 30 {
			t.Errorf("%d watches in ten minutes", n)
		}
	})
}

func TestListerWatcherContinueTokenGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(10, "a", "b")
		s.pageSize = 1
		first := true
		s.fail = func(asked string) error {
			if asked == "more b" && first {
				first = false
				return apierrors.NewResourceExpired("the token is too old")
			}
			return nil
		}
		r := read(t, s, event.Position{}, nil)
		r.expect("begun snapshot from ", "listed a@11")
		time.Sleep(time.Second)
		r.expect("begun interrupted from ", "listed a@11", "listed b@12", "ended 12 >12")
		r.endCancelled()
	})
}

// One failed page must not restart a list of a hundred thousand objects.
func TestListerWatcherRetriesPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(10, "a", "b")
		s.pageSize = 1
		failures := 0
		s.fail = func(asked string) error {
			if failures++; asked == "more b" && failures < 4 {
				return apierrors.NewInternalError(errors.New("etcd has no leader"))
			}
			return nil
		}
		r := read(t, s, event.Position{}, nil)
		time.Sleep(time.Minute)
		r.expect("begun snapshot from ", "listed a@11", "listed b@12", "ended 12 >12")
		r.endCancelled()
	})
}

// A watch from a resourceVersion that is yet to come would be silent (facts,
// "Resuming" 2).
func TestListerWatcherHistoryWentBack(t *testing.T) {
	t.Run("before Run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := read(t, newShelf(10, "a"), at("90"), nil)
			r.expect("begun history from 90, a new epoch", "listed a@11", "ended 11 >11")
			if !r.signals[0].NewEpoch {
				t.Error("no new epoch")
			}
			r.endCancelled()
		})
	})
	t.Run("beneath a watch, and the list breaks off", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf(90, "a", "b")
			s.pageSize = 1
			r := read(t, s, event.Position{}, nil)
			r.expect("begun snapshot from ", "listed a@91", "listed b@92", "ended 92 >92")
			s.mu.Lock()
			first := true
			s.fail = func(asked string) error {
				if asked == "more b" && first {
					first = false
					return apierrors.NewResourceExpired("the token is too old")
				}
				return nil
			}
			s.mu.Unlock()
			s.restore(20)
			s.hangUp()
			time.Sleep(5 * time.Second)
			r.expect("begun history from 92, a new epoch", "listed a@91", "begun interrupted from ", "listed a@91", "listed b@92", "ended 20 >20")
			if again := r.signals[6]; again.NewEpoch {
				t.Errorf("%s: the epoch is new only once", describe(again))
			}
			r.endCancelled()
		})
	})
}

func TestListerWatcherWaits(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no role"))
	for _, x := range []struct {
		name string
		fail func(string) error
		want string
	}{
		{"list refused", func(asked string) error {
			return map[string]error{"list": forbidden}[asked]
		}, "list: configmaps"},
		{"watch refused", func(asked string) error {
			if strings.HasPrefix(asked, "watch") {
				return forbidden
			}
			return nil
		}, "watch: configmaps"},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(10, "a")
				s.fail = x.fail
				r := read(t, s, event.Position{}, nil)
				last := r.lastState()
				if last.Phase != source.Waiting || !apierrors.IsForbidden(last.Err) || !strings.HasPrefix(last.Err.Error(), x.want) || !last.Until.After(time.Now()) {
					t.Errorf("state %+v", last)
				}
				before := len(r.received())
				time.Sleep(time.Hour)
				synctest.Wait()
				if got := r.received(); len(got) != before {
					t.Errorf("a refusal passed on %v", got[before:])
				}
				if n := len(s.askedFor()); n > 300 {
					t.Errorf("asked %d times in an hour", n)
				}
				s.mu.Lock()
				s.fail = nil
				s.mu.Unlock()
				time.Sleep(time.Minute)
				r.expect("begun snapshot from ", "listed a@11", "ended 11 >11")
				r.endCancelled()
			})
		})
	}
	t.Run("a list without a resourceVersion", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newShelf(10, "a")
			s.alter = func(list runtime.Object) { list.(*corev1.ConfigMapList).ResourceVersion = "" }
			r := read(t, s, event.Position{}, nil)
			r.expect()
			if err := r.lastState().Err; err == nil || !strings.Contains(err.Error(), "without a resourceVersion") {
				t.Errorf("waits for %v", err)
			}
			r.endCancelled()
		})
	})
}

// An event that the server cannot send (an etcd event without its previous value) must not block a collection without end.
func TestListerWatcherErrorsInTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(10, "a")
		s.put("b")
		broken := apierrors.NewInternalError(errors.New("PrevKv is nil")).Status()
		s.opened = func(w watch.Interface) {
			if len(s.asked) <= 10 { // five probes and watches
				w.(*watch.RaceFreeFakeWatcher).Action(watch.Error, &broken)
			}
		}
		r := read(t, s, at("12"), nil)
		time.Sleep(5 * time.Minute)
		r.expect("begun expired from 12", "listed a@11", "listed b@12", "ended 12 >12")
		r.endCancelled()
	})
}

func TestListerWatcherHandlerEndsRun(t *testing.T) {
	for _, kind := range []source.SignalKind{source.ListBegun, source.Listed, source.ListEnded, source.Added} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// An error that looks like the server's is still the handler's.
				full := fmt.Errorf("store: %w", apierrors.NewResourceExpired("the disk is full"))
				s := newShelf(10, "a")
				r := read(t, s, event.Position{}, func(o *ListerWatcherOptions) {
					o.Handler = source.HandlerFunc(func(_ context.Context, s source.Signal) error {
						if s.Kind == kind {
							return full
						}
						return nil
					})
				})
				s.put("b")
				if err := <-r.done; err != full {
					t.Errorf("Run returned %v", err)
				}
			})
		})
	}
}

// A watch that is not read is closed, and none of its events is lost.
func TestListerWatcherBlockedHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(10, "a")
		r := read(t, s, at("11"), func(o *ListerWatcherOptions) {
			rec := o.Handler.(*recorder)
			rec.hook = func(_ context.Context, s source.Signal) error {
				if s.Object != nil && s.Object.Name == "b" && len(rec.received()) == 1 {
					time.Sleep(listwatch.MaxBlocked + time.Second)
				}
				return nil
			}
		})
		s.put("b")
		s.put("c")
		synctest.Wait()
		time.Sleep(listwatch.MaxBlocked + 2*time.Second)
		r.expect("added b@12 >11", "added c@13 >12")
		r.endCancelled()
	})
}

// A handler that takes longer than MaxBlocked for every event receives every event once.
func TestListerWatcherHandlerThatAlwaysBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(10, "a", "x", "y", "z")
		r := read(t, s, at("14"), func(o *ListerWatcherOptions) {
			o.Handler.(*recorder).hook = func(context.Context, source.Signal) error {
				time.Sleep(listwatch.MaxBlocked + time.Second)
				return nil
			}
		})
		s.put("b")
		s.put("c")
		s.remove("x", "y", "z")
		pass(10 * (listwatch.MaxBlocked + time.Second))
		r.expect("added b@15 >14", "added c@16 >15", "deleted x@17 >16", "deleted y@17 >16", "deleted z@17 >16")
		r.endCancelled()
	})
}

func TestListerWatcherKinds(t *testing.T) {
	metadata := func(kind metav1.TypeMeta) func(*corev1.ConfigMap) object {
		return func(c *corev1.ConfigMap) object {
			return &metav1.PartialObjectMetadata{TypeMeta: kind, ObjectMeta: c.ObjectMeta}
		}
	}
	wire := metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	given := source.Resource{Group: "example.com", Version: "v1", Kind: "Thing"}
	for _, x := range []struct {
		name     string
		encodeAs func(*corev1.ConfigMap) object
		scheme   *runtime.Scheme
		resource source.Resource
		want     string
		err      error
	}{
		{"typed, by scheme", nil, scheme.Scheme, source.Resource{}, "v1 ConfigMap", nil},
		{"the scheme goes before the resource", nil, scheme.Scheme, given, "v1 ConfigMap", nil},
		{"typed, by resource", nil, nil, given, "example.com/v1 Thing", nil},
		{"typed, by nothing", nil, nil, source.Resource{}, "", ErrNotRegistered},
		{"metadata, by resource", metadata(wire), scheme.Scheme, given, "example.com/v1 Thing", nil},
		{"metadata alone", metadata(metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}), nil, given, "v1 ConfigMap", nil},
		{"metadata, by nothing", metadata(wire), scheme.Scheme, source.Resource{}, "", ErrUnknowable},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(10)
				s.encodeAs = x.encodeAs
				s.put("a")
				s.oldest = s.rv
				r := read(t, s, event.Position{}, func(o *ListerWatcherOptions) { o.Scheme, o.Resource = x.scheme, x.resource })
				s.put("b")
				synctest.Wait()
				for _, sig := range r.signals {
					if o := sig.Object; o != nil {
						parsed, err := source.ParseObject(o.Raw)
						if err != nil || parsed.APIVersion+" "+parsed.Kind != x.want || o.APIVersion+" "+o.Kind != x.want {
							t.Errorf("got %s: %v", o.Raw, err)
						}
					}
				}
				if x.err == nil {
					if len(r.received()) != 4 {
						t.Errorf("received %v", r.received())
					}
					r.endCancelled()
					return
				}
				err := <-r.done
				var typed *GVKError
				if !errors.Is(err, x.err) || !errors.As(err, &typed) {
					t.Errorf("Run returned %v", err)
				}
			})
		})
	}
}

// Pages that are broken off become smaller, in this list and in the next one. Those that fail at once do not.
func TestListerWatcherPagesThatAreBrokenOff(t *testing.T) {
	for took, want := range map[time.Duration][]int64{
		0:               {500, 500, 500, 500, 500, 500},
		4 * time.Second: {500, 125, 125, 31, 7, 7},
	} {
		t.Run(took.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShelf(10, "a", "b", "c")
				s.pageSize = 2
				n := 0
				s.fail = func(asked string) error {
					if n++; n == 1 || n == 3 || n == 4 { // the first page, and the second one twice
						time.Sleep(took)
						return io.ErrUnexpectedEOF
					}
					return nil
				}
				r := read(t, s, event.Position{}, nil)
				pass(time.Minute)
				s.forget()
				s.hangUp()
				s.put("d")
				s.forget()
				pass(time.Minute)
				r.endCancelled()
				s.mu.Lock()
				defer s.mu.Unlock()
				if !slices.Equal(s.limits[:6], want) {
					t.Errorf("asked for pages of %v objects, want %v", s.limits, want)
				}
			})
		})
	}
}
